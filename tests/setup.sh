#!/bin/sh
# Installs what building and testing nsbox needs, if it is missing.
#
#   setup.sh go      print the path of the newest usable go, or nothing
#   setup.sh build   C compiler, libc and libseccomp to link statically, python3, go
#   setup.sh demo    the same; for a plain user also newuidmap and a range of subordinate ids
#   setup.sh test    as build, newuidmap, pip, musl and mmdebstrap to make roots with, and the user nsbox-test with a range of subordinate ids
#   setup.sh bench   bubblewrap, to compare with
#
# Each need is looked for by what it is used for; apt runs only when something
# is missing. Without root or sudo the script says what to install and stops.
set -eu

# From this release on, go fetches by itself the release that go.mod asks for.
oldest_go=21

go_minor() { GOTOOLCHAIN=local "$1" version 2>/dev/null | sed -n 's/^go version go1\.\([0-9][0-9]*\).*/\1/p'; }

find_go() {
    best= best_minor=0
    for go in "$(command -v go 2>/dev/null || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go "${HOME:-/}"/sdk/go1.*/bin/go; do
        [ -x "$go" ] || continue
        minor=$(go_minor "$go")
        if [ -n "$minor" ] && [ "$minor" -ge "$oldest_go" ] && [ "$minor" -gt "$best_minor" ]; then
            best=$go best_minor=$minor
        fi
    done
    echo "$best"
}

# static_lib NAME: the compiler finds libNAME.a.
static_lib() { case $(gcc -print-file-name="lib$1.a" 2>/dev/null) in */*) ;; *) return 1 ;; esac; }

missing_packages() {
    command -v gcc >/dev/null || echo gcc
    static_lib c || echo libc6-dev
    { static_lib seccomp && [ -e /usr/include/seccomp.h ]; } || echo libseccomp-dev
    command -v pkg-config >/dev/null || echo pkg-config
    /usr/bin/python3 -c 'import csv, decimal, sqlite3' 2>/dev/null || echo python3 # the box looks for programs in the system's folders only; python3-minimal lacks most modules
    [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s "${SSL_CERT_FILE:-}" ] || echo ca-certificates
    [ "$1" != test ] || command -v ip >/dev/null || echo iproute2 # network namespaces of the tests' own
    if [ "$1" = test ]; then
        /usr/bin/python3 -m pip --version >/dev/null 2>&1 || echo python3-pip # nsbox prep uses the root's own
        command -v musl-gcc >/dev/null || echo musl-tools
        command -v mmdebstrap >/dev/null || echo mmdebstrap
        command -v strace >/dev/null || echo strace
    fi
    if [ "$1" = test ] || { [ "$1" = demo ] && [ "$(id -u)" -ne 0 ]; }; then
        [ -u /usr/bin/newuidmap ] || [ -n "$(getcap /usr/bin/newuidmap 2>/dev/null || true)" ] || echo uidmap
    fi
    [ "$1" != test ] || everyday_packages
}

# What people run in the everyday box (tests/tool, tests/network), some 90 seconds of processor time once.
everyday_packages() {
    for need in tmux:tmux git:git perl:perl sqlite3:sqlite3 node:nodejs javac:default-jdk-headless vi:vim-tiny groff:groff-base; do
        command -v "${need%%:*}" >/dev/null || echo "${need#*:}"
    done
    /usr/bin/python3 -c 'import pandas' 2>/dev/null || echo python3-pandas
    /usr/bin/python3 -c 'import matplotlib' 2>/dev/null || echo python3-matplotlib
    # Clients of tests/network, and the relay it compares with.
    for need in curl:curl psql:postgresql-client socat:socat; do
        command -v "${need%%:*}" >/dev/null || echo "${need#*:}"
    done
    /usr/bin/python3 -c 'import requests' 2>/dev/null || echo python3-requests
    /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
}

stop() { echo "setup: $1" >&2; [ -z "${2:-}" ] || echo "setup: next: $2" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# may_install WHAT COMMAND: end here unless this user can become root.
may_install() {
    command -v apt-get >/dev/null || stop "missing: $1" "install it with this system's package manager; only Debian and Ubuntu are done by themselves"
    [ "$(id -u)" -eq 0 ] && return
    if command -v sudo >/dev/null; then
        sudo -n true 2>/dev/null && return
        [ -t 0 ] && sudo -v && return
    fi
    stop "missing: $1; this user is neither root nor allowed to use sudo" "as root: $2"
}

# What apt and dpkg say is of use only where they fail.
apt() {
    said=$(mktemp)
    if as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >"$said" 2>&1; then
        rm -f "$said"
        return 0
    fi
    cat "$said" >&2
    rm -f "$said"
    return 1
}

# A list that is there but empty, or old, gives no candidate: then refresh it.
refreshed=
refresh_lists() {
    [ -z "$refreshed" ] || return 0
    apt update >&2 || stop "apt-get update failed" "check this machine's package sources and its network"
    refreshed=yes
}

install_packages() {
    may_install "$*" "apt-get update && apt-get install --no-install-recommends $*"
    echo "setup: installing $*" >&2
    refresh_lists
    apt install -y --no-install-recommends "$@" >&2 || stop "apt-get could not install $*" "see the lines above"
}

newest_go_package() { # with any apt options in front
    apt-cache "$@" pkgnames golang-1. 2>/dev/null |
        sed -n 's/^golang-1\.\([0-9][0-9]*\)-go$/\1/p' | sort -n | tail -n 1
}

# The release's own go may be too old. Its backports may hold a new one; they
# are read through a private list beside the system's, which stays as it is.
install_go() {
    may_install "go 1.$oldest_go or newer" "install Go 1.$oldest_go or newer and put it on PATH"
    refresh_lists
    minor=$(newest_go_package)
    if [ "${minor:-0}" -ge "$oldest_go" ]; then
        install_packages "golang-1.$minor-go"
        return
    fi
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    lists=$(as_root mktemp -d /var/tmp/nsbox-setup.XXXXXX)
    as_root mkdir -p "$lists/parts" "$lists/state/partial"
    as_root chmod -R a+rX "$lists"
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)' 'Created-By: Packages' |
        while read -r uri release component key; do
            case "$release/$component" in
            "$codename/main" | "$codename-updates/main")
                option=
                case $key in '' | '$('*) ;; *) option="[signed-by=$key]" ;; esac # unset, apt leaves the word as it is
                echo "deb $option $uri $release main"
                [ "$release" != "$codename" ] || echo "deb $option $uri $codename-backports main"
                ;;
            esac
        done | as_root tee "$lists/sources.list" >/dev/null
    set -- -o "Dir::Etc::sourcelist=$lists/sources.list" -o "Dir::Etc::sourceparts=$lists/parts" -o "Dir::State::lists=$lists/state" -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache="
    apt "$@" update >&2 || true
    minor=$(newest_go_package "$@")
    if [ "${minor:-0}" -ge "$oldest_go" ]; then
        echo "setup: installing golang-1.$minor-go from $codename-backports" >&2
        apt "$@" install -y --no-install-recommends "golang-1.$minor-go" >&2 || true
    fi
    as_root rm -rf "$lists"
}

need_build() {
    packages=$(missing_packages "$1")
    # shellcheck disable=SC2086 # a list of plain words
    [ -z "$packages" ] || install_packages $packages
    [ -n "$(find_go)" ] || install_go
    [ -n "$(find_go)" ] || stop "no go 1.$oldest_go or newer was found or could be installed" "install Go 1.$oldest_go or newer and put it on PATH"
}

# has_range FILE USER: the user has at least 65536 subordinate ids there.
has_range() { awk -F: -v user="$2" '$1 == user && $3 >= 65536 { ok = 1 } END { exit !ok }' "$1" 2>/dev/null; }

# The first free multiple of 65536 above every range in FILE.
free_range() { awk -F: 'BEGIN { top = 131072 } $2 + $3 > top { top = $2 + $3 } END { print int((top + 65535) / 65536) * 65536 }' "$1"; }

# need_range USER: a plain user's box runs under ids of the user's own range.
need_range() {
    has_range /etc/subuid "$1" && has_range /etc/subgid "$1" && return
    may_install "a range of subordinate ids for $1" "usermod --add-subuids and --add-subgids for $1, 65536 free ids each"
    echo "setup: giving $1 a range of subordinate ids" >&2
    as_root touch /etc/subuid /etc/subgid
    for kind in uid gid; do
        has_range "/etc/sub$kind" "$1" && continue
        start=$(free_range "/etc/sub$kind")
        as_root usermod "--add-sub${kind}s" "$start-$((start + 65535))" "$1"
    done
}

# Tests that must run as a plain user do so as this one.
need_test_user() {
    if ! id nsbox-test >/dev/null 2>&1; then
        may_install "the user nsbox-test" "useradd -m -s /usr/sbin/nologin nsbox-test"
        echo "setup: making the user nsbox-test (no login)" >&2
        as_root useradd -m -s /usr/sbin/nologin nsbox-test
    fi
    need_range nsbox-test
}

case "${1:-}" in
go) find_go ;;
build) need_build build ;;
demo)
    need_build demo
    [ "$(id -u)" -eq 0 ] || need_range "$(id -un)"
    ;;
test)
    need_build test
    need_test_user
    ;;
bench) command -v bwrap >/dev/null || install_packages bubblewrap ;;
*) stop "usage: setup.sh go|build|demo|test|bench" ;;
esac
