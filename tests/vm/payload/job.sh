# Sourced. job NAME [COMMAND…]: the main job with COMMAND in front of nsbox. The
# result is /out/NAME.json, what nsbox said /out/NAME.txt, its exit status
# /out/NAME.status, what it delivered below /out/NAME.
job() {
    name=$1
    shift
    mkdir -p "/out/$name"
    code=0
    "$@" /payload/nsbox exec --state-dir "/tmp/state-$(id -u)" --policy sales-summary --allow-degraded "$degraded" \
        --in /payload/txhousing.csv --in /payload/summarise.py --deliver "/out/$name" --result "/out/$name.json" \
        -- python3 /in/summarise.py >"/out/$name.txt" 2>&1 || code=$?
    echo "$code" >"/out/$name.status"
    echo "[$(cut -d ' ' -f 1 /proc/uptime)] job $name: $code"
}

# gotests WHO: the static test binaries that /payload/gotests has for WHO, each
# among a copy of its package's files.
gotests() {
    while read -r who name package skip; do
        [ "$who" = "$1" ] || continue
        code=0
        (cd "/payload/src/$package" && timeout 200 ./package.test -test.v -test.short -test.timeout 180s -test.skip "$skip") >"/out/$name.gotest" 2>&1 </dev/null || code=$?
        echo "$code" >"/out/$name.gotest.status"
        echo "[$(cut -d ' ' -f 1 /proc/uptime)] tests of $name: $code"
    done </payload/gotests
}
degraded=memory,cpu_rate,cpu_total,launcher_identity,out_storage
