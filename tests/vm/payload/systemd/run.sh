. /payload/job.sh
scope() { systemd-run --user --scope --quiet -p Delegate=yes -- "$@"; }
/payload/facts >/out/login.facts
scope /payload/facts >/out/scope.facts
job login
job scope systemd-run --user --scope --quiet -p Delegate=yes --
gotests user
# What makes groups itself needs one of its own, and to be told that it is.
scope sh -c '. /payload/job.sh; export CGROUPV2_TEST_ROOT="/sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup)"; gotests scope'
