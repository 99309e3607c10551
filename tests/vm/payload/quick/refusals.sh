# Each refusal is forced alone, by root, and taken back; "delegated" of run.sh,
# the same job with nothing forced, is the positive control of them all.
. /payload/job.sh
group=/sys/fs/cgroup/user/u

# refuse NAME [GROUP]: the job as u, started in GROUP.
refuse() {
    name=$1
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "${2:-$group/session}" su -s /bin/sh u -c ". /payload/job.sh; options='$options'; job $name"
}

options="$options --cgroup $group"

# zero SYSCTL NAME: the job with 0 in it.
zero() {
    was=$(cat "/proc/sys/$1")
    echo 0 >"/proc/sys/$1"
    refuse "$2"
    echo "$was" >"/proc/sys/$1"
}
zero kernel/unprivileged_userns_clone userns-sysctl
zero user/max_user_namespaces userns-none

mv /etc/subuid /etc/subuid.away
refuse without-range
mv /etc/subuid.away /etc/subuid
mv /usr/bin/newgidmap /usr/bin/newgidmap.away
refuse without-helper
mv /usr/bin/newgidmap.away /usr/bin/newgidmap

# In mounts of their own: what is mounted there goes with the last process.
unshare -m sh -c '
    mount --make-rprivate /
    mount -t tmpfs masked /proc/irq
    echo $$ >/sys/fs/cgroup/user/u/session/cgroup.procs
    exec su -s /bin/sh u -c ". /payload/job.sh; options=\"$0\"; job masked-proc"' "$options"
unshare -m sh -c '
    mount --make-rprivate /
    echo $$ >/sys/fs/cgroup/user/u/session/cgroup.procs
    mount -o remount,ro,bind /sys/fs/cgroup
    exec su -s /bin/sh u -c ". /payload/job.sh; options=\"$0\"; job readonly-cgroupfs"' "$options"

# In the root group, which is not u's.
options='--allow-degraded out_storage'
refuse not-delegated /sys/fs/cgroup

# A group of u's that got no controller from above.
mkdir -p /sys/fs/cgroup/bare/u/leaf
chown -R 1000:1000 /sys/fs/cgroup/bare/u
options="--allow-degraded out_storage --cgroup /sys/fs/cgroup/bare/u"
refuse no-controller /sys/fs/cgroup/bare/u/leaf
