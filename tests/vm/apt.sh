# Sourced. A package index of our own beside this machine's: other suites than
# the machine runs are read through it, and the machine's dpkg and apt state
# stay as they are.
#
#   debian_source SUITE          the one line that names SUITE's archive
#   private_apt DIR SUITE        makes DIR an apt state for SUITE and reads its index
#   apt_in DIR apt-get|apt-cache …

# The archive is the one this machine's own apt uses, whatever that is. The
# security archive has other suites and is passed over.
debian_source() {
    uri=${NSBOX_VM_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "main" && $3 !~ /security/ { print $4; exit }')}
    [ -n "$uri" ] || stop "this machine's apt knows no Debian archive to take guests from" "set NSBOX_VM_MIRROR to the address of one"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $1 main"
}

private_apt() {
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/parts"
    : >"$1/status" # nothing is installed there: a closure comes out whole
    source_line=$(debian_source "$2")
    echo "$source_line" >"$1/sources.list"
    apt_in "$1" apt-get -qq update >&2 || stop "the index of $2 could not be read" "check this machine's package sources and its network"
}

apt_in() {
    state=$1 tool=$2
    shift 2
    "$tool" -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts="$state/parts" \
        -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
        -o Acquire::Languages=none -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Debug::NoLocking=true "$@"
}
