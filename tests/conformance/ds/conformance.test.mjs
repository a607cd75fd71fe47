// The public suite of Durable Streams, unchanged, against `LEAT_URL`: under `/v1/stream`, or, if `LEAT_BUCKET` names
// one, in that bucket. The optional subscriptions are left out.

import { runConformanceTests } from "@durable-streams/server-conformance-tests"
import { proxy } from "./proxy.mjs"

const { LEAT_URL, LEAT_BUCKET, LEAT_LONG_POLL_MS } = process.env

let baseUrl = LEAT_URL
if (LEAT_BUCKET) {
  const made = await fetch(`${LEAT_URL}/ds/${LEAT_BUCKET}`, { method: "PUT" })
  if (made.status !== 201) throw new Error(`the bucket was not made: ${made.status} ${await made.text()}`)
  baseUrl = await proxy(LEAT_URL, LEAT_BUCKET)
}
runConformanceTests({ baseUrl, longPollTimeoutMs: Number(LEAT_LONG_POLL_MS), subscriptions: false })
