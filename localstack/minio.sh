#!/usr/bin/env bash
# Leat on MinIO in a container; its data stays in a volume. It needs Docker with compose.
. "$(dirname "$0")/common.sh"

trap 'docker compose --file localstack/compose.minio.yaml down' EXIT
docker compose --file localstack/compose.minio.yaml up --detach --wait minio
docker compose --file localstack/compose.minio.yaml run --rm bucket
leat http://127.0.0.1:9000 test testtest
