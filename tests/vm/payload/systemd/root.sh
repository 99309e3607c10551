{ ls -l /usr/bin/newuidmap /usr/bin/newgidmap; cat /etc/subuid /etc/subgid; systemctl show user@1000.service -p DelegateControllers; } 2>&1
for dir in / /user.slice /user.slice/user-1000.slice /user.slice/user-1000.slice/user@1000.service; do
    echo "$dir: $(cat "/sys/fs/cgroup$dir/cgroup.controllers")"
done

# A profile as a distribution might ship for some other program: everything
# but user namespaces. The job under it is refused; "login" of run.sh is the control.
cp /payload/nsbox /usr/local/bin/nsbox-denied
cat >/etc/apparmor.d/nsbox-denied <<'EOF'
abi <abi/4.0>,
include <tunables/global>
profile nsbox-denied /usr/local/bin/nsbox-denied {
  file, capability, network, unix, signal, ptrace, mount, umount, pivot_root, dbus,
}
EOF
apparmor_parser -r /etc/apparmor.d/nsbox-denied
echo "apparmor_parser: $?"
as-user sh -c '. /payload/job.sh; nsbox=/usr/local/bin/nsbox-denied; job apparmor'
