# What the scripts here share; sourced, not run.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
tools=$target/tools
server=
serving=
scratch=

finish() {
    local status=$? started _
    trap - EXIT
    for started in $serving $server; do
        kill "$started" 2>/dev/null || true
        # LocalStack does not always end when it is asked to.
        for _ in $(seq 50); do
            kill -0 "$started" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$started" 2>/dev/null || true
    done
    [ -z "$scratch" ] || rm -rf "$scratch"
    exit "$status"
}
trap finish EXIT

# An environment with the packages that a list of pins names, made by the Python given after it.
environment() {
    local name=$1 pins=$2 python=$3
    cmp --silent "$pins" "$tools/$name/pins.txt" && return
    printf 'installing %s\n' "$name" >&2
    "$python" -m venv --clear "$tools/$name"
    "$tools/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$pins"
    cp "$pins" "$tools/$name/pins.txt"
}

# Asks until the answer is a success; ends if the server has.
await() {
    for _ in $(seq 300); do
        curl --silent --fail --output /dev/null "$1" && return
        [ -z "$server" ] || kill -0 "$server" || return 1
        sleep 0.2
    done
    printf 'no answer from %s\n' "$1" >&2
    return 1
}

# Leat on the bucket `leat` of an endpoint: its address, access key and secret key.
leat() {
    export AWS_ENDPOINT_URL=$1 AWS_ACCESS_KEY_ID=$2 AWS_SECRET_ACCESS_KEY=$3 AWS_REGION=us-east-1
    cargo run --locked -- serve --store s3://leat/leat
}
