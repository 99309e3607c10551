#!/bin/sh
# Runs nsbox verify as root and as the tests' plain user, and writes
# docs/conformance.md. VM_REPORT names a report from a guest, if there is one.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A checkout may lie below a folder that the plain user cannot enter.
chmod 755 "$dir"
mkdir "$dir/bin" "$dir/user"
cp bin/nsbox bin/nsbox-verify bin/nsbox-verify-shim "$dir/bin"
chown nsbox-test "$dir/user"
"$dir/bin/nsbox" verify --out "$dir/root"
(cd "$dir" && setpriv --reuid nsbox-test --regid nsbox-test --clear-groups env HOME=/nonexistent "$dir/bin/nsbox" verify --out "$dir/user")
set -- "host, root=$dir/root/report.json" "host, plain user=$dir/user/report.json"
if [ -n "${VM_REPORT:-}" ]; then set -- "$@" "vm, delegated user=$VM_REPORT"; fi
"${GO:-go}" run ./tests/conformance/record "$@" >"$dir/doc"
cp "$dir/doc" docs/conformance.md
