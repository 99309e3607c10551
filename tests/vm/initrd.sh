#!/bin/sh
# initrd.sh KERNEL_DIR FILE: busybox, the modules that find a disk, and
# guest/init. The same image starts both tiers.
set -eu
. "$(dirname "$0")/cache.sh"
kernel=$1 out=$2
release=$(cat "$kernel/release")

work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/modules" "$root/root" "$root/disk"
chmod 755 "$root" # mktemp's 0700 would be the guest's first root
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"

# modprobe knows what needs what, and what is built in, for each kernel.
modprobe -d "$kernel" -S "$release" --show-depends -a virtio_pci virtio_blk ext4 >"$work/order"
sed -n 's/^insmod \([^ ]*\).*/\1/p' "$work/order" | awk '!seen[$0]++' | {
    n=10
    while read -r module; do
        n=$((n + 1))
        name=$n-$(basename "$module" | sed 's/\.ko.*//').ko
        case $module in
        *.xz) xz -dc "$module" >"$root/modules/$name" ;;
        *.zst) zstd -qdc "$module" >"$root/modules/$name" ;;
        *) cp "$module" "$root/modules/$name" ;;
        esac
    done
}
for file in init quick runner as-user; do
    cp "$here/guest/$file" "$root/$file"
    chmod 755 "$root/$file"
done
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$out"
