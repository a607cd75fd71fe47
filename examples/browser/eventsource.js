// Follows a stream of JSON with nothing but the browser's own EventSource.

import { hopeless } from "./stream.js"

const PAUSE_MS = { first: 200, most: 5_000 }

/** Shows the stream from its beginning, and what is still to come; returns what stops it. */
export function follow(url, view) {
  let source, timer
  let isStopped = false
  let pause = PAUSE_MS.first
  // Where to read on, by the last `control`, and the messages that have come since.
  let offset = "-1"
  let cursor
  let waiting = []

  function open() {
    const from = new URL(url)
    from.searchParams.set("offset", offset)
    from.searchParams.set("live", "sse")
    if (cursor !== undefined) from.searchParams.set("cursor", cursor)
    waiting = []
    let isFruitful = false
    source = new EventSource(from)

    // The events have names, so `onmessage` would see none of them.
    source.addEventListener("data", ({ data }) => waiting.push(...JSON.parse(data)))

    source.addEventListener("control", ({ data }) => {
      const control = JSON.parse(data)
      // Messages count once their control is here: a connection that breaks between the two is read again.
      offset = control.streamNextOffset
      cursor = control.streamCursor
      view.add(waiting, offset)
      waiting = []
      isFruitful = true
      pause = PAUSE_MS.first
      if (control.streamClosed) stop("closed")
      else view.state("live")
    })

    // The window has ended, or the connection broke. Left alone, EventSource would open the URL it was given.
    source.addEventListener("error", async () => {
      source.close()
      if (isFruitful) return again()
      view.state("reconnecting")
      // It does not tell why it failed, so another request does.
      const why = await hopeless(url)
      if (isStopped) return
      if (why) stop("failed", why.message)
      else again()
    })
  }

  function again() {
    timer = setTimeout(open, pause)
    pause = Math.min(2 * pause, PAUSE_MS.most)
  }

  function stop(state, why) {
    isStopped = true
    clearTimeout(timer)
    source.close()
    if (state) view.state(state, why)
  }

  view.state("connecting")
  open()
  return () => stop()
}
