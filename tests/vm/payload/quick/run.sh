. /payload/job.sh
/payload/facts >/out/user.facts
export CGROUPV2_TEST_SWAP=1 NSBOX_LIMITS_CGROUP=/sys/fs/cgroup/user/u CGROUPV2_TEST_ROOT=/sys/fs/cgroup/user/u
options="$options --cgroup $NSBOX_LIMITS_CGROUP"
job delegated
gotests user
