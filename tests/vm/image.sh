#!/bin/sh
# image.sh SUITE FILE: a root filesystem with systemd for the systemd tier, as
# an ext4 image. The user u (uid 1000) has a lingering session and the
# subordinate ids 100000:65536. Runs as root: the files belong to many users.
set -eu
. "$(dirname "$0")/cache.sh"
. "$here/apt.sh"
suite=$1 out=$2

root=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
source_line=$(debian_source "$suite")
mmdebstrap --quiet --mode=root --variant=essential --format=directory \
    --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,python3,apparmor,procps,passwd,login,util-linux \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$suite" "$root" "$source_line" >&2

echo nsbox-vm >"$root/etc/hostname"
echo '127.0.0.1 localhost nsbox-vm' >"$root/etc/hosts"
echo '/dev/root / ext4 rw,noatime 0 0' >"$root/etc/fstab"
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash u
for kind in uid gid; do
    grep -q '^u:100000:65536$' "$root/etc/sub$kind" || echo u:100000:65536 >"$root/etc/sub$kind"
done
mkdir -p "$root/var/lib/systemd/linger" "$root/etc/systemd/system/user@.service.d"
: >"$root/var/lib/systemd/linger/u"
# What a host that wants rootless containers is told to set.
cat >"$root/etc/systemd/system/user@.service.d/delegate.conf" <<'EOF'
[Service]
Delegate=cpu cpuset io memory pids
EOF
cp "$here/guest/nsbox-vm.service" "$root/etc/systemd/system/"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../nsbox-vm.service "$root/etc/systemd/system/multi-user.target.wants/nsbox-vm.service"
ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"

# Emulated, the boot is most of a run. What no test looks at stays off.
for unit in getty.target getty@tty1.service serial-getty@ttyS0.service \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-tmpfiles-clean.timer \
    systemd-timesyncd.service systemd-networkd.service systemd-pstore.service systemd-random-seed.service systemd-update-utmp.service systemd-journal-flush.service \
    systemd-hwdb-update.service systemd-modules-load.service systemd-journal-catalog-update.service systemd-firstboot.service ldconfig.service systemd-sysusers.service \
    systemd-ask-password-console.path systemd-ask-password-wall.path systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    modprobe@drm.service modprobe@efi_pstore.service modprobe@configfs.service modprobe@fuse.service \
    systemd-pcrphase.service systemd-pcrphase-sysinit.service \
    dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount sys-kernel-config.mount; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
# The distribution's own AppArmor profiles take seconds to load; tests load theirs.
find "$root/etc/apparmor.d" -maxdepth 1 -type f -delete
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id" # empty means first boot
touch -d '+1 day' "$root/etc/.updated" "$root/var/.updated"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/cache/debconf/*

megabytes=$(du -sm "$root" | cut -f 1)
mke2fs -q -t ext4 -O ^has_journal -m 0 -E lazy_itable_init=1 -d "$root" "$out" "$((megabytes + 300))M" >&2
