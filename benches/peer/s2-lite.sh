#!/usr/bin/env bash
# `s2 bench` against Leat and against `s2 lite`, both on a local folder, in one run; `just bench-peer` runs it.
# The figures are the command line's own; memory is the server's peak and what it holds at the end.
#
# Needs the release build of the `s2` command line, which `just cli-tour` makes, or `S2=path`.
set -euo pipefail
cd "$(dirname "$0")/../.."

RATES=${RATES:-"1 100"}
DURATION=${DURATION:-20s}
CATCHUP_DELAY=${CATCHUP_DELAY:-2s}
S2=${S2:-${CARGO_TARGET_DIR:-target}/cli-tour/bin/s2}
LEAT=${LEAT:-${CARGO_TARGET_DIR:-target}/release/leat}
port=4480

work=$(mktemp -d "${WORK:-/tmp}/leat-peer.XXXXXX")
server=
finish() {
    status=$?
    trap - EXIT
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT

export HOME=$work XDG_CONFIG_HOME=$work/.config S2_NO_UPDATE_CHECK=1 S2_ACCESS_TOKEN=bench
export S2_ACCOUNT_ENDPOINT=http://127.0.0.1:$port S2_BASIN_ENDPOINT=http://127.0.0.1:$port

start() {
    case $1 in
        leat) exec "$LEAT" serve --listen "127.0.0.1:$port" --store "file://$work/$1-$2" --log warn ;;
        s2-lite) exec "$S2" lite --port "$port" --local-root "$work/$1-$2" ;;
    esac >"$work/$1.log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        curl --silent --fail --output /dev/null "http://127.0.0.1:$port/health" && return
        sleep 0.1
    done
    cat "$work/$1.log" >&2
    return 1
}

for rate in $RATES; do
    for peer in ${PEERS:-s2-lite leat}; do
        mkdir -p "$work/$peer-$rate"
        start "$peer" "$rate"
        printf '\n== %s at %s MiB/s\n' "$peer" "$rate"
        "$S2" create-basin bench-basin >/dev/null 2>&1
        before=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
        "$S2" bench bench-basin --target-mibps "$rate" --duration "$DURATION" --catchup-delay "$CATCHUP_DELAY" 2>&1 |
            tr '\r' '\n' | tail -n "${LINES_SHOWN:-40}"
        after=$(awk '{ print $14 + $15 }' "/proc/$server/stat")
        printf 'server: %s %s, CPU %s s\n' "$(awk '/VmHWM/ { print "peak", int($2 / 1024), "MiB" }' "/proc/$server/status")" \
            "$(awk '/VmRSS/ { print "now", int($2 / 1024), "MiB" }' "/proc/$server/status")" "$(((after - before) / 100))"
        kill "$server" && wait "$server" 2>/dev/null || true
        server=
        rm -rf "$work/$peer-$rate"
    done
done
