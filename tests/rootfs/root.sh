#!/bin/sh
# root.sh: a Debian root of this machine's release with python3-pandas and pip,
# made by mmdebstrap from this machine's own package source. Prints its path.
#
# It takes a minute or more, so it is kept outside of the repository under a name
# that holds a digest of this recipe. It appears there by one rename or not at
# all. Everything in it is readable for all: the tests use it as plain users too.
set -eu
PATH=$PATH:/usr/sbin:/sbin
stop() { echo "root: $1" >&2; exit 1; }

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
key=$( { cat "$0"; echo "$codename"; } | sha256sum | cut -c 1-16)
cache=${NSBOX_ROOTS:-/var/cache/nsbox-tests}
root=$cache/debian-$key
if [ ! -d "$root" ]; then
    command -v mmdebstrap >/dev/null || stop "mmdebstrap is missing: sh tests/setup.sh test installs it"
    source_line=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)' 'Created-By: Packages' |
        awk -v release="$codename" '$2 == release && $3 == "main" { print ($4 ~ /^\// ? "deb [signed-by=" $4 "] " : "deb "), $1, $2, $3; exit }')
    [ -n "$source_line" ] || stop "this machine's apt has no source for $codename main"
    mkdir -p "$cache"
    chmod 755 "$cache"
    new=$(mktemp -d "$cache/new.XXXXXX")
    mmdebstrap --quiet --mode=root --variant=essential --format=directory --include=python3-pandas,python3-pip,libopenblas0-pthread,tzdata \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$codename" "$new" "$source_line" >&2
    rm -rf "$new"/var/cache/apt/* "$new"/var/lib/apt/lists/* "$new"/var/cache/debconf/* "$new"/dev/*
    chmod -R a+rX "$new"
    mv -T "$new" "$root"
fi
echo "$root"
