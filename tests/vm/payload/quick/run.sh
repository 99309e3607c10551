. /payload/job.sh
/payload/facts >/out/user.facts
export NSBOX_LIMITS_CGROUP=/sys/fs/cgroup/user/u CGROUPV2_TEST_ROOT=/sys/fs/cgroup/user/u
options="$options --cgroup $NSBOX_LIMITS_CGROUP"
job delegated
gotests user
