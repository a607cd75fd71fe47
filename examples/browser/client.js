// Follows a stream of JSON with the official client.

import { stream } from "@durable-streams/client"
import { isFinal } from "./stream.js"

const PAUSE_MS = 200

/** Shows the stream from its beginning, and what is still to come; returns what stops it. */
export function follow(url, view) {
  const stopping = new AbortController()
  const { signal } = stopping

  async function run() {
    let offset = "-1"
    view.state("connecting")
    while (!signal.aborted) {
      try {
        const read = await stream({
          url: url.href,
          offset,
          live: "sse",
          json: true,
          signal,
          warnOnHttp: false,
          backoffOptions: {
            initialDelay: 200,
            multiplier: 1.5,
            maxDelay: 5_000,
            onFailedAttempt: () => view.state("reconnecting"),
          },
        })
        read.subscribeJson((batch) => {
          offset = batch.offset
          view.add(batch.items, offset)
          view.state(batch.streamClosed ? "closed" : "live")
        })
        // The client opens the next window itself.
        await read.closed
        if (signal.aborted) return
        if (read.streamClosed) return view.state("closed")
      } catch (error) {
        if (signal.aborted) return
        if (isFinal(error)) return view.state("failed", error.json?.message ?? error.message)
      }
      // A connection that breaks is an error to it, and its reader's to open again.
      view.state("reconnecting")
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    }
  }

  run()
  return () => stopping.abort()
}
