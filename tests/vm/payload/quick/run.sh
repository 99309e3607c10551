. /payload/job.sh
/payload/facts >/out/user.facts
export NSBOX_LIMITS_CGROUP=/sys/fs/cgroup/user/u
options="$options --cgroup $NSBOX_LIMITS_CGROUP"
job delegated
ls -R /sys/fs/cgroup/user >/out/groups
gotests user
