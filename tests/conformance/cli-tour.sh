#!/usr/bin/env bash
# A tour of the official `s2` command line against a Leat on a local folder, then the command line's own integration
# suite, unchanged; `just cli-tour` runs it, CI does not. The first run builds the command line and its suite below
# the target folder, which takes a while. It needs `cargo` and `curl`.
#
# The first command that fails, or answers something else than it should, ends the tour with a non-zero code.
set -euo pipefail
cd "$(dirname "$0")/../.."

CLI_VERSION=0.43.4
SUITE_CASES=48
TARGET_MIBPS=${TARGET_MIBPS:-50}
DURATION=${DURATION:-10s}

target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/cli-tour
if ! "$tools/bin/s2" --version 2>/dev/null | grep -qF "$CLI_VERSION"; then
    cargo install --locked --root "$tools" --target-dir "$tools/build" --version "$CLI_VERSION" s2-cli
fi
cargo build --release --locked

work=$(mktemp -d)
server=
finish() {
    status=$?
    trap - EXIT
    [ -z "$server" ] || { kill "$server" && wait "$server"; } || true
    if [ "$status" -ne 0 ]; then
        printf -- '--- server log ---\n' >&2
        tail -n 50 "$work/server.log" >&2 || true
    fi
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT

"$target/release/leat" serve --listen 127.0.0.1:0 --store "file://$work/data" >"$work/banner" 2>"$work/server.log" &
server=$!
for _ in $(seq 100); do
    url=$(sed -n '1s/.* //p' "$work/banner")
    [ -n "$url" ] && curl --silent --fail --output /dev/null "$url/health" && break
    sleep 0.1
done

# The user's own settings of the command line stay out of it.
builder=$HOME
export HOME=$work XDG_CONFIG_HOME=$work/.config S2_NO_UPDATE_CHECK=1
export S2_ACCESS_TOKEN=test S2_ACCOUNT_ENDPOINT=$url S2_BASIN_ENDPOINT=$url

passed=0
step() {
    passed=$((passed + 1))
    printf '\n== %d %s\n' "$passed" "$1"
}
s2() {
    printf '$ s2 %s\n' "$*" >&2
    timeout 120 "$tools/bin/s2" "$@"
}
# What stdin holds is what is expected, and is shown.
expect() {
    local got
    got=$(cat)
    printf '%s\n' "$got"
    if [ "$got" != "$1" ]; then
        printf 'expected:\n%s\n' "$1" >&2
        return 1
    fi
}
holds() {
    tee "$work/output"
    grep -qF -- "$1" "$work/output" || { printf 'expected to find: %s\n' "$1" >&2; return 1; }
}
refused() {
    if "$@" >"$work/output" 2>&1; then
        printf 'it should have been refused\n' >&2
        return 1
    fi
    cat "$work/output"
}

basin=cli-tour
stream=s2://$basin/orders/42

step 'create a basin and a stream'
s2 create-basin "$basin" --retention-policy 1d
s2 create-stream "$stream" --storage-class express
s2 get-stream-config "$stream" | holds express

step 'list'
s2 ls | holds "$basin"
s2 list-basins --prefix cli- | holds "$basin"
s2 ls "$basin" | holds orders/42
s2 list-streams "s2://$basin/orders/" | holds orders/42
s2 list-locations
s2 get-default-location

step 'append from stdin'
seq 1 1000 | sed 's/^/record /' | s2 append "$stream"
s2 check-tail "$stream" | holds 1000

step 'read'
s2 read "$stream" --seq-num 0 --count 3 | expect $'record 1\nrecord 2\nrecord 3'
test "$(s2 read "$stream" --seq-num 0 --count 1000 | tail -n 1)" = 'record 1000'

step 'tail'
s2 tail "$stream" --lines 2 | expect $'record 999\nrecord 1000'

step 'follow'
(sleep 2 && s2 append "$stream" --match-seq-num 1000 <<<'one more') &
timeout 6 "$tools/bin/s2" tail "$stream" --lines 1 --follow >"$work/followed" || test $? -eq 124
wait $!
expect $'record 1000\none more' <"$work/followed"

step 'a condition that does not hold'
refused s2 append "$stream" --match-seq-num 7 <<<'late'
s2 check-tail "$stream" | holds 1001

step 'fence'
s2 fence "$stream" writer-1
s2 append "$stream" --fencing-token writer-1 <<<'mine'
refused s2 append "$stream" --fencing-token writer-2 <<<'theirs'
s2 fence "$stream" '' --fencing-token writer-1

step 'trim'
s2 trim "$stream" 1000
s2 read "$stream" --seq-num 0 --count 1 | expect 'one more'

step 'reconfigure'
s2 reconfigure-basin "$basin" --create-stream-on-append true
s2 get-basin-config "$basin" | holds create_stream_on_append
s2 reconfigure-stream "$stream" --retention-policy 1w
s2 get-stream-config "$stream" | holds 7days
s2 append "s2://$basin/on-demand" <<<'made by its first record'
s2 read "s2://$basin/on-demand" --seq-num 0 --count 1 | expect 'made by its first record'

step "bench at $TARGET_MIBPS MiB/s for $DURATION, with its chain of hashes verified"
s2 bench "$basin" --target-mibps "$TARGET_MIBPS" --duration "$DURATION"

step 'delete'
s2 delete-stream "$stream"
refused s2 check-tail "$stream"
s2 delete-basin "$basin"
refused s2 get-basin-config "$basin"

step "the command line's own suite: $SUITE_CASES cases"
suite=$tools/suite
if ! [ -d "$suite" ]; then
    cp -r "${CARGO_HOME:-$builder/.cargo}"/registry/src/*/"s2-cli-$CLI_VERSION" "$suite"
fi
# It is built where the home folder holds the toolchain.
(
    cd "$suite"
    HOME=$builder cargo test --release --locked --no-run --target-dir "$tools/build" --test integration
    HOME=$builder cargo test --release --locked --target-dir "$tools/build" --test integration
) | tee "$work/suite"
grep -qF "test result: ok. $SUITE_CASES passed; 0 failed; 0 ignored" "$work/suite"

printf '\n%d steps passed\n' "$passed"
