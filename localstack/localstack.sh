#!/usr/bin/env bash
# Leat on LocalStack's S3 in a container. It needs Docker with compose.
. "$(dirname "$0")/common.sh"

docker compose --file localstack/compose.localstack.yaml up --detach --wait
trap 'docker compose --file localstack/compose.localstack.yaml down' EXIT
curl --silent --fail --output /dev/null -X PUT http://127.0.0.1:4566/leat
leat http://127.0.0.1:4566 test test
