{ ls -l /usr/bin/newuidmap /usr/bin/newgidmap; cat /etc/subuid /etc/subgid; systemctl show user@1000.service -p DelegateControllers; } 2>&1
for dir in / /user.slice /user.slice/user-1000.slice /user.slice/user-1000.slice/user@1000.service; do
    echo "$dir: $(cat "/sys/fs/cgroup$dir/cgroup.controllers")"
done

# Profiles as a distribution might ship them for some other program: one allows
# everything but user namespaces, the other everything but capabilities. The job
# under each is refused; "login" of run.sh is the control of both.
denied() {
    cp /payload/nsbox "/usr/local/bin/nsbox-$1"
    cat >"/etc/apparmor.d/nsbox-$1" <<EOF
abi <abi/4.0>,
include <tunables/global>
profile nsbox-$1 /usr/local/bin/nsbox-$1 {
  file, network, unix, signal, ptrace, mount, umount, pivot_root, dbus, $2,
}
EOF
    apparmor_parser -r "/etc/apparmor.d/nsbox-$1"
    echo "apparmor_parser $1: $?"
    as-user sh -c ". /payload/job.sh; nsbox=/usr/local/bin/nsbox-$1; job apparmor-$1"
}
denied userns capability
denied capabilities userns

# The profiles that nsbox ships. At its installed place a profile that knows no
# user namespaces keeps the job from running; provision puts its own there instead.
mkdir -p /usr/local/bin
cp /payload/nsbox /usr/local/bin/nsbox
installed() { as-user sh -c ". /payload/job.sh; nsbox=/usr/local/bin/nsbox; job $1"; }
sed 's/nsbox-userns/distribution/g; s,/usr/local/bin/distribution,/usr/local/bin/nsbox,' /etc/apparmor.d/nsbox-userns >/etc/apparmor.d/distribution
apparmor_parser -r /etc/apparmor.d/distribution
installed without-profile
apparmor_parser -R /etc/apparmor.d/distribution
rm /etc/apparmor.d/distribution
for step in --apply --check; do
    /usr/local/bin/nsbox provision "$step" >"/out/provision$step.txt" 2>&1
    echo "$?" >"/out/provision$step.status"
done
installed with-profile
# What a process started by that path runs under, and what one under the
# workload's profile may do: each act without it and with it.
label() { as-user /usr/local/bin/nsbox exec --state-dir /tmp/state-label --allow-degraded out_storage -- cat /proc/self/attr/current; }
label >/out/label.txt 2>&1
acts() {
    for act in 'cat /etc/hostname' 'unshare -U true' "$socket"; do
        "$@" sh -c "$act" >/dev/null 2>&1
        echo "$?"
    done
}
socket='python3 -c "import socket; socket.socket(socket.AF_INET)"'
acts >/out/acts-free.txt
acts aa-exec -p nsbox-workload -- >/out/acts-workload.txt
/usr/local/bin/nsbox provision --undo >/out/provision--undo.txt 2>&1
echo "$?" >/out/provision--undo.status
grep nsbox /sys/kernel/security/apparmor/profiles >/out/profiles.txt
