{ ls -l /usr/bin/newuidmap /usr/bin/newgidmap; cat /etc/subuid /etc/subgid; systemctl show user@1000.service -p DelegateControllers; } 2>&1
for dir in / /user.slice /user.slice/user-1000.slice /user.slice/user-1000.slice/user@1000.service; do
    echo "$dir: $(cat "/sys/fs/cgroup$dir/cgroup.controllers")"
done
