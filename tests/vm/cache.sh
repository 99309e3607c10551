# Sourced. What is expensive to make is made once and kept outside of the
# repository, under a name that holds a digest of everything it was made from.
#
#   cached NAME RECIPE… -- COMMAND…   runs "COMMAND… NEW" unless it is there;
#                                     sets $artifact to its path
#
# A RECIPE is a file, whose content counts, or a word. A changed recipe is
# another name, so what is stale is never looked at, and goes when unused for
# two weeks. NEW appears under its name by one rename, or not at all.

here=$(cd "$(dirname "$0")" && pwd)
cache=${NSBOX_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/nsbox-vm}

# The system's administration folders are not on every user's PATH.
PATH=$PATH:/usr/sbin:/sbin

stop() {
    echo "vm: $1" >&2
    [ -z "${2:-}" ] || echo "vm: next: $2" >&2
    exit 99
}

digest() {
    for part in "$@"; do
        if [ -f "$part" ]; then sha256sum <"$part"; else echo "$part" | sha256sum; fi
    done | sha256sum | cut -c 1-16
}

cached() {
    name=$1 recipe=
    shift
    while [ "$1" != -- ]; do
        recipe="$recipe $1"
        shift
    done
    shift
    mkdir -p "$cache" || stop "the cache $cache cannot be made" "set NSBOX_VM_CACHE to a directory of yours"
    # shellcheck disable=SC2086 # paths of this folder and plain words
    artifact=$cache/$name-$(digest $recipe)
    (
        # Two runs that both lack it build it once.
        flock 9
        [ ! -e "$artifact" ] || exit 0
        started=$(date +%s)
        new=$(mktemp -d "$cache/.new.XXXXXX")
        trap 'rm -rf --one-file-system "$new"' EXIT
        trap 'exit 130' INT TERM HUP
        "$@" "$new/it" 9>&- || exit 1
        mv -T "$new/it" "$artifact"
        echo "vm: made $name in $(($(date +%s) - started)) s" >&2
    ) 9>"$cache/$name.lock" || stop "$name could not be made" "see the lines above"
    touch "$artifact" # in use: see below
    find "$cache" -maxdepth 1 -name "$name-????????????????" -mtime +14 -exec rm -rf {} +
    find "$cache" -maxdepth 1 -name '.new.??????' -mtime +1 -exec rm -rf --one-file-system {} + # of a run that was killed
}
