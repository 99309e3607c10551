# The job with swap on, then with swap off.
. /payload/job.sh
group=/sys/fs/cgroup/user/u
swap=$(grep -l '^results$' /sys/block/vd*/serial | cut -d / -f 4)
mkswap "/dev/$swap" && swapon "/dev/$swap"
cat /proc/cmdline /proc/swaps
ls $group/session
as-user sh -c ". /payload/job.sh; options='$options --cgroup $group'; job swap"
swapoff "/dev/$swap"
as-user sh -c ". /payload/job.sh; options='$options --cgroup $group'; job delegated"
