#!/usr/bin/env bash
# Leat on LocalStack's S3, without Docker. It needs Python 3.13 or newer: `PYTHON` names it, if `python3` is older.
. "$(dirname "$0")/common.sh"

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then
    printf 'LocalStack needs Python 3.13 or newer; name one in PYTHON (PYTHON=python3.13 %s)\n' "$0" >&2
    exit 1
fi
environment localstack tests/support/localstack.txt "$python"

scratch=$(mktemp -d)
# From its own folder: one in the working directory that is called like a module of it would be taken for that.
(
    cd "$tools/localstack"
    exec env GATEWAY_LISTEN=127.0.0.1:4566 SERVICES=s3 STRICT_SERVICE_LOADING=1 EAGER_SERVICE_LOADING=1 \
        FILESYSTEM_ROOT="$scratch" LOCALSTACK_VOLUME_DIR="$scratch" XDG_CACHE_HOME="$scratch/cache" \
        DISABLE_EVENTS=1 SKIP_SSL_CERT_DOWNLOAD=1 DNS_ADDRESS=0 bin/python -m localstack.runtime.main
) &
server=$!
await http://127.0.0.1:4566/_localstack/health
curl --silent --fail --output /dev/null -X PUT http://127.0.0.1:4566/leat
leat http://127.0.0.1:4566 test test
