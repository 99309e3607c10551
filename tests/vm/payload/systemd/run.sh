. /payload/job.sh
scope() { systemd-run --user --scope --quiet -p Delegate=yes -- "$@"; }
/payload/facts >/out/login.facts
scope /payload/facts >/out/scope.facts
job login
job scope systemd-run --user --scope --quiet -p Delegate=yes --
gotests user
# What makes groups itself needs one of its own, without a process in it.
scope sh -c '
    . /payload/job.sh
    export CGROUPV2_TEST_ROOT="/sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup)"
    mkdir "$CGROUPV2_TEST_ROOT/shell"
    echo $$ >"$CGROUPV2_TEST_ROOT/shell/cgroup.procs"
    gotests scope'
