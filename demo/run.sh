#!/bin/sh
# The main job: an untrusted script over real sales data, delivered into a fresh
# directory below out/. Nothing is ever overwritten.
#
# The policy asks for a dedicated plain user, a provisioned /out and a delegated
# cgroup, and nsbox refuses to run with less unless it is allowed by name. So
# the first call allows nothing; where it is refused, the refusal says what this
# machine lacks, and the second call allows exactly that.
set -eu
cd "$(dirname "$0")/.."

out=out/demo-$(date -u +%Y%m%dT%H%M%SZ)-$$
mkdir -p "$out"

run() {
    bin/nsbox exec --policy sales-summary --in demo/txhousing.csv --in demo/summarise.py \
        --deliver "$out" --result "$out/result.json" "$@" -- python3 /in/summarise.py
}

status=0
run 2>"$out/first-call.txt" || status=$?
lacking=$(sed -n 's/^  *"next": ".*--allow-degraded \([a-z_,]*\)".*/\1/p' "$out/result.json" | head -n 1)
case ,$lacking, in
,,) cat "$out/first-call.txt" >&2 ;;
*,landlock,* | *,identity,*) # a box without these is not what the demo is to show
    cat "$out/first-call.txt" >&2
    exit 1
    ;;
*)
    echo "demo: this machine enforces these more weakly than the policy asks, allowed by name: $lacking"
    echo "demo: nsbox exec --policy sales-summary --in demo/txhousing.csv --in demo/summarise.py --deliver $out --result $out/result.json --allow-degraded $lacking -- python3 /in/summarise.py"
    status=0
    run --allow-degraded "$lacking" || status=$?
    ;;
esac
rm -f "$out/first-call.txt"
if [ "$status" -ne 0 ]; then
    echo "demo: nsbox ended with exit status $status; see docs/exit-codes.md and $out/result.json" >&2
    exit "$status"
fi

if ! cmp "$out/summary.csv" demo/txhousing-by-city.csv >&2; then
    diff "$out/summary.csv" demo/txhousing-by-city.csv >&2 || true
    exit 1
fi
echo "demo: $out/summary.csv equals demo/txhousing-by-city.csv, byte for byte; its first lines:"
head -n 4 "$out/summary.csv"
echo "demo: the JSON result without its attestation; whole in $out/result.json:"
exec python3 -c '
import json, sys
result = json.load(open(sys.argv[1]))
rows = result.pop("attestation")
print(json.dumps(result, indent=2))
counts = {}
for row in rows:
    counts[row["status"]] = counts.get(row["status"], 0) + 1
print("demo: attestation: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items(), key=lambda c: -c[1])))
' "$out/result.json"
