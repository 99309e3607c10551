# Sourced. job NAME [COMMAND…]: the main job with COMMAND in front of $nsbox and
# $options behind it, under $policy. The result is /out/NAME.json, what nsbox said
# /out/NAME.txt, its exit status /out/NAME.status, what it delivered below /out/NAME.
job() {
    name=$1
    shift
    mkdir -p "/out/$name"
    chmod 777 "/out/$name"
    code=0
    # shellcheck disable=SC2086 # options, one a word
    "$@" "${nsbox:-/payload/nsbox}" exec --state-dir "/tmp/state-$(id -u)" --policy "${policy:-/payload/policy.json}" $options \
        --in /payload/txhousing.csv --in /payload/summarise.py --deliver "/out/$name" --result "/out/$name.json" \
        -- python3 /in/summarise.py >"/out/$name.txt" 2>&1 || code=$?
    echo "$code" >"/out/$name.status"
    echo "[$(cut -d ' ' -f 1 /proc/uptime)] job $name: $code"
}

# gotests WHO: the static test binaries that /payload/gotests has for WHO, each
# among a copy of its package's files.
gotests() {
    while read -r who name package seconds run skip; do
        [ "$who" = "$1" ] || continue
        code=0
        (cd "/payload/src/$package" && timeout "$((seconds + 20))" ./package.test -test.v -test.short -test.timeout "${seconds}s" -test.run "$run" -test.skip "$skip") >"/out/$name.gotest" 2>&1 </dev/null || code=$?
        echo "$code" >"/out/$name.gotest.status"
        echo "[$(cut -d ' ' -f 1 /proc/uptime)] tests of $name: $code"
        grep -E '^--- (FAIL|PASS)' "/out/$name.gotest"
    done </payload/gotests
}

# Nothing else may be weaker here.
options='--allow-degraded out_storage'
export NSBOX_BIN=/payload/nsbox NSBOX_TEST_ALL=$(cat /payload/whole)
