#!/bin/sh
# Installs what the VM tier needs on this machine, if it is missing: the
# emulator, the image tools and busybox for the guest. Without root or sudo it
# says what to install and stops.
set -eu

stop() { echo "vm setup: $1" >&2; [ -z "${2:-}" ] || echo "vm setup: next: $2" >&2; exit 1; }

# The system's administration folders are not on every user's PATH.
PATH=$PATH:/usr/sbin:/sbin

missing() {
    command -v qemu-system-x86_64 >/dev/null || echo qemu-system-x86
    command -v mmdebstrap >/dev/null || echo mmdebstrap
    command -v mke2fs >/dev/null || echo e2fsprogs
    command -v depmod >/dev/null || echo kmod
    command -v flock >/dev/null || echo util-linux
    command -v xz >/dev/null || echo xz-utils
    command -v zstd >/dev/null || echo zstd
    # The guest has no C library of its own before the root is there.
    busybox_is_static || echo busybox-static
    [ -s /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
}

busybox_is_static() {
    busybox=$(command -v busybox) || return 1
    ! ldd "$busybox" >/dev/null 2>&1
}

packages=$(missing | tr '\n' ' ')
[ -n "$packages" ] || exit 0

command -v apt-get >/dev/null || stop "missing: $packages" "install them with this system's package manager; only Debian and Ubuntu are done by themselves"
sudo=
if [ "$(id -u)" -ne 0 ]; then
    sudo=sudo
    { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; } ||
        stop "missing: $packages; this user is neither root nor allowed to use sudo" "as root: apt-get update && apt-get install --no-install-recommends $packages"
fi
apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >&2; }

echo "vm setup: installing $packages" >&2
apt update || stop "apt-get update failed" "check this machine's package sources and its network"
# shellcheck disable=SC2086 # a list of plain words
apt install -y --no-install-recommends $packages || stop "apt-get could not install: $packages" "see the lines above"
