#!/bin/sh
# Boots a guest, runs a payload in it and brings the results out.
#
#   run.sh quick|systemd --payload DIR --out DIR
#          [--kernel 6.1|6.12] [--delegate all|default] [--timeout SECONDS] [--memory MIB] [--append KERNEL_WORDS]
#   run.sh prepare [--kernel 6.1|6.12]     only make what the guests are started from
#
# quick    busybox and the kernel's own suite of libc, python3 and newuidmap on a
#          tmpfs, cgroup v2 with a subtree delegated to uid 1000
# systemd  trixie with systemd, user u (1000) with a session and subordinate ids;
#          --delegate default leaves the distribution's delegation as it is
#
# DIR/root.sh runs as root if it is there, then DIR/run.sh as uid 1000; both see
# the payload in /payload and leave results in /out, which comes back as
# OUT/results with run.log, root.log and dmesg beside them. In the guest,
# "as-user COMMAND…" gives root a command as uid 1000.
#
# OUT/console shows while it runs how far it is.
#
# Exit status: that of root.sh if not 0, then that of run.sh; 99 if the guest
# did not say how it ended, for whatever reason; 98 if it did not even get as far
# as the payload, so that booting it once more is fair.
set -eu
. "$(dirname "$0")/cache.sh"

usage() { stop "$1" "run.sh quick|systemd|prepare [--kernel 6.1|6.12] [--delegate all|default] [--timeout SECONDS] [--memory MIB] [--append KERNEL_WORDS] --payload DIR --out DIR"; }

tier=${1:-} kernel=6.12 delegate=all timeout=300 memory=1536 append='' payload='' out=''
case $tier in quick | systemd | prepare) shift ;; *) usage "no tier '$tier'" ;; esac
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage "$1 wants a value"
    case $1 in
    --kernel) kernel=$2 ;;
    --delegate) delegate=$2 ;;
    --timeout) timeout=$2 ;;
    --memory) memory=$2 ;;
    --append) append=$2 ;;
    --payload) payload=$2 ;;
    --out) out=$2 ;;
    *) usage "unknown option $1" ;;
    esac
    shift 2
done
case $kernel in
6.1) suite=bookworm processors=1 ;; # it waits for ever for a second one under a clock that counts instructions
6.12) suite=trixie processors=2 ;;
*) usage "no kernel '$kernel'" ;;
esac
case $delegate in all | default) ;; *) usage "no delegation '$delegate'" ;; esac
root_suite=trixie

sh "$here/setup.sh"

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo env "PATH=$PATH" "NSBOX_VM_MIRROR=${NSBOX_VM_MIRROR:-}" "$@"; fi
}
make_image() { # SUITE FILE
    # mmdebstrap mounts proc and devices below the tree it makes. In namespaces of
    # its own they go with it however it ends, and no cleaning up ever meets them.
    as_root unshare --mount --propagation private --pid --fork --kill-child --mount-proc sh "$here/image.sh" "$1" "$2"
    as_root chown "$(id -u):$(id -g)" "$2"
}

cached "kernel-$kernel" "$here/kernel.sh" "$here/apt.sh" "$suite" -- sh "$here/kernel.sh" "$suite"
kernel_dir=$artifact
release=$(cat "$kernel_dir/release")
cached "initrd-$kernel" "$here/initrd.sh" "$here/guest/init" "$here/guest/quick" "$here/guest/runner" "$here/guest/as-user" "$release" -- sh "$here/initrd.sh" "$kernel_dir"
initrd=$artifact
root_disk=$kernel_dir/userland.tar
if [ "$tier" != quick ]; then
    cached "root-$root_suite" "$here/image.sh" "$here/apt.sh" "$here/guest/nsbox-vm.service" "$root_suite" -- make_image "$root_suite"
    root_disk=$artifact
fi
[ "$tier" != prepare ] || exit 0

{ [ -n "$payload" ] && [ -n "$out" ]; } || usage "--payload and --out are needed"
[ -e "$payload/run.sh" ] || [ -e "$payload/root.sh" ] || usage "$payload holds neither run.sh nor root.sh"
mkdir -p "$out"
work=$(mktemp -d "$out/.vm.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 99' INT TERM HUP
rm -rf "$out/results" "$out/marker" "$out/console"
tar -c --owner=0 --group=0 -C "$payload" -f "$work/payload" .
truncate -s 256M "$work/results" # a tar ends before its disk does; the rest stays a hole
nonce=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')

# disk NAME FILE FORMAT-OPTIONS: the guest finds it by the serial number NAME.
disk() { echo "-drive file=$2,if=none,id=$1,format=raw$3 -device virtio-blk-pci,drive=$1,serial=$1"; }

started=$(date +%s.%N)
status=0
# On a busy host the emulated timer comes too late for the kernel's own check of it: no_timer_check.
# The guest's clock counts its instructions (4 ns each) and not the host's time: a
# second of its processor is the same work however busy the host is, and waiting
# costs nothing. That takes one thread for all of its processors.
# The emulator's own time limit is for a guest that is stuck; the payload's is kept inside, where its log survives it.
# shellcheck disable=SC2046 # options, one a word
timeout --foreground -k 5 $((timeout * 2 + 120)) qemu-system-x86_64 \
    -M q35 -accel tcg,thread=single -icount shift=2,sleep=off -cpu max -smp $processors -m "$memory" \
    -nodefaults -no-user-config -display none -no-reboot -nic none \
    -kernel "$kernel_dir/vmlinuz" -initrd "$initrd" \
    -append "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check mitigations=off cgroup_no_v1=all systemd.show_status=no nsbox.tier=$tier nsbox.delegate=$delegate nsbox.timeout=$timeout nsbox.nonce=$nonce $append" \
    $(disk root "$root_disk" ,snapshot=on) $(disk payload "$work/payload" ,readonly=on) $(disk results "$work/results" ,cache=unsafe) \
    -serial "file:$out/console" -serial "file:$work/marker" </dev/null >&2 &
emulator=$!
trap 'kill "$emulator" 2>/dev/null; exit 99' INT TERM HUP
# A boot takes seconds here and minutes where the machine is shared by many.
boot=900 waited=0
booted() { grep -q "^nsbox-vm $nonce booted" "$work/marker" 2>/dev/null; }
while kill -0 "$emulator" 2>/dev/null && ! booted; do
    sleep 1
    waited=$((waited + 1))
    [ "$waited" -lt "$boot" ] || kill "$emulator"
done
wait "$emulator" || status=$?

mkdir -p "$out/results"
tar -x --no-same-owner --no-overwrite-dir -C "$out/results" -f "$work/results" 2>/dev/null || true
marker=$(tr -d '\r' <"$work/marker" 2>/dev/null | grep "^nsbox-vm $nonce root=[0-9]* user=[0-9]* " || true)
seconds=$(date +%s.%N | awk -v a="$started" '{ printf "%.1f", $1 - a }')
if [ -z "$marker" ]; then
    failure="no result" code=99
    booted || failure="it did not boot" code=98
    echo "vm: $tier, kernel $kernel: $failure after $seconds s, the emulator ended with $status; the console's last lines:" >&2
    tail -n 15 "$out/console" >&2 2>/dev/null || true
    exit "$code"
fi
echo "$marker" >"$out/marker"
echo "vm: $tier, kernel $release, delegation $delegate: $seconds s; ${marker#nsbox-vm "$nonce" }" >&2
root_status=$(echo "$marker" | sed 's/.* root=\([0-9]*\) .*/\1/')
user_status=$(echo "$marker" | sed 's/.* user=\([0-9]*\) .*/\1/')
[ "$root_status" -ne 0 ] || exit "$user_status"
exit "$root_status"
