#!/bin/sh
# kernel.sh SUITE DIR: the suite's cloud kernel as DIR/vmlinuz, with its modules
# below DIR/lib/modules and its release in DIR/release; and DIR/userland.tar,
# the suite's own libc, python3 and newuidmap with busybox for the rest: the
# quick tier's root. Packages are unpacked, not installed; no script of theirs runs.
set -eu
. "$(dirname "$0")/cache.sh"
. "$here/apt.sh"
suite=$1 dir=$2

work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$dir" "$work/debs"
private_apt "$work/apt" "$suite"

# The metapackage names the kernel of today.
image=$(apt_in "$work/apt" apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p')
[ -n "$image" ] || stop "$suite has no linux-image-cloud-amd64" ""
(cd "$work/debs" && apt_in "$work/apt" apt-get -qq download "$image" >&2)
mkdir "$work/kernel"
dpkg -x "$work/debs/$image"_*.deb "$work/kernel"
mv "$work/kernel"/boot/vmlinuz-* "$dir/vmlinuz"
modules=$(find "$work/kernel" -type d -path '*/lib/modules/*' -prune)
release=$(basename "$modules")
mkdir -p "$dir/lib/modules"
mv "$modules" "$dir/lib/modules/$release"
depmod -b "$dir" "$release"
echo "$release" >"$dir/release"

# With an empty status file apt works out the whole closure of both.
apt_in "$work/apt" apt-get -qq --download-only -y install python3 uidmap >&2
root=$work/root
for d in bin sbin lib lib64; do
    mkdir -p "$root/usr/$d"
    ln -s "usr/$d" "$root/$d" # merged before unpacking, as on a real system
done
for deb in "$work"/apt/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink --no-same-owner -C "$root" \
        --exclude './usr/share/doc/*' --exclude './usr/share/locale/*' --exclude './usr/share/man/*' --exclude './usr/lib/x86_64-linux-gnu/gconv/*' -f -
done
[ -e "$root/usr/bin/python3" ] || stop "python3 of $suite brings no /usr/bin/python3" ""
# Unpacked by an ordinary user they have lost what they are for.
chmod 4755 "$root/usr/bin/newuidmap" "$root/usr/bin/newgidmap"

busybox=$(command -v busybox)
cp "$busybox" "$root/usr/bin/busybox"
"$busybox" --list | while read -r applet; do
    [ -e "$root/usr/bin/$applet" ] || [ -e "$root/usr/sbin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
done
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/run" "$root/tmp" "$root/root" "$root/home/u" "$root/etc"
cat >"$root/etc/passwd" <<'EOF'
root:x:0:0::/root:/bin/sh
u:x:1000:1000::/home/u:/bin/sh
EOF
cat >"$root/etc/group" <<'EOF'
root:x:0:
u:x:1000:
EOF
for kind in uid gid; do echo u:100000:65536 >"$root/etc/sub$kind"; done
echo '127.0.0.1 localhost' >"$root/etc/hosts"
chmod 755 "$root"
chmod 1777 "$root/tmp"
tar -c --sort=name --owner=0 --group=0 -C "$root" -f "$dir/userland.tar" .
