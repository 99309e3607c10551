. /payload/job.sh
scope() { systemd-run --user --scope --quiet -p Delegate=yes -- "$@"; }
/payload/facts >/out/login.facts
scope /payload/facts >/out/scope.facts
job login
job scope systemd-run --user --scope --quiet -p Delegate=yes --

# What is recorded here about this kernel, binary and account lets the policy say
# CONFIRMED, and the job run under it.
scope /payload/nsbox doctor --evidence /out/evidence.json --state-dir "/tmp/state-$(id -u)" >/out/doctor.txt 2>&1
echo "$?" >/out/doctor.status
/payload/nsbox policy confirm --evidence /out/evidence.json --output /out/policy-confirmed.json /payload/policy.json >/out/confirm.txt 2>&1
echo "$?" >/out/confirm.status
policy=/out/policy-confirmed.json
job confirmed
policy=

gotests user
# What makes groups itself needs one of its own, without a process in it.
scope sh -c '
    . /payload/job.sh
    export CGROUPV2_TEST_ROOT="/sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup)"
    mkdir "$CGROUPV2_TEST_ROOT/shell"
    echo $$ >"$CGROUPV2_TEST_ROOT/shell/cgroup.procs"
    gotests scope'
if [ -n "$NSBOX_TEST_ALL" ]; then
    /payload/nsbox verify --out /out/verify >/out/verify.txt 2>&1
    echo "$?" >/out/verify.status
fi
