. /payload/job.sh
/payload/facts >/out/root.facts
options='--allow-degraded out_storage,launcher_identity'
job privileged
sh /payload/refusals.sh
gotests root
# For the rest there is somewhere to swap to, so that a limit on memory alone
# would be passed, and there are huge pages, which no limit on memory counts.
swap=$(grep -l '^results$' /sys/block/vd*/serial | cut -d / -f 4)
mkswap "/dev/$swap" && swapon "/dev/$swap"
cat /proc/swaps
echo 8 >/proc/sys/vm/nr_hugepages
grep -i hugepages /proc/meminfo
