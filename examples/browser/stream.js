// One stream of a server: its address, and the requests that are not reads.

export const CONTENT_TYPE = "application/json"

/** What the server said no with, in words for people. */
export class Refused extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/** `chats/42` is `/v1/stream/chats/42`; what begins with a slash, such as `/ds/chats/42`, is the whole path. */
export function address(server, path) {
  const whole = path.startsWith("/") ? path : `/v1/stream/${path}`
  return new URL(server.replace(/\/+$/, "") + whole.split("/").map(encodeURIComponent).join("/"))
}

/** Whether the stream is there, what it holds, where it ends, and whether it is closed. */
export async function status(url) {
  const { headers } = await ask(url, { method: "HEAD" })
  return {
    contentType: headers.get("content-type"),
    nextOffset: headers.get("stream-next-offset"),
    isClosed: headers.get("stream-closed") === "true",
  }
}

/** Creates the stream, and under `/ds` its bucket too. */
export async function create(url) {
  const put = (to) => ask(to, { method: "PUT", headers: { "content-type": CONTENT_TYPE } })
  const bucket = /^\/ds\/[^/]+(?=\/)/.exec(url.pathname)?.[0]
  try {
    await put(url)
  } catch (error) {
    if (error.status !== 404 || !bucket) throw error
    await put(new URL(bucket, url))
    await put(url)
  }
}

/** Appends one message. */
export async function append(url, message) {
  // An array would be taken for several messages, so one goes in an array of its own.
  const body = JSON.stringify([message])
  await ask(url, { method: "POST", headers: { "content-type": CONTENT_TYPE }, body })
}

/** Closes the stream for good. */
export async function close(url) {
  await ask(url, { method: "POST", headers: { "stream-closed": "true" } })
}

/** Why a read of the stream will fail however often it is tried; nothing if the next try may do. */
export async function hopeless(url) {
  try {
    await status(url)
  } catch (error) {
    if (isFinal(error)) return error
  }
  return undefined
}

/** Whether the same request will be refused again. */
export function isFinal({ status }) {
  return status >= 400 && status < 500 && status !== 408 && status !== 429
}

async function ask(url, request) {
  let response
  try {
    response = await fetch(url, request)
  } catch {
    // Browsers do not say more: it may be down, elsewhere, or not meant for other pages.
    throw new Refused(0, `No answer from ${url.origin}. Is Leat running there?`)
  }
  if (!response.ok) throw new Refused(response.status, await words(url, response))
  return response
}

async function words(url, response) {
  if (response.headers.get("stream-closed") === "true") return "The stream is closed: it takes no more messages."
  const { message } = await response.json().catch(() => ({}))
  if (message) return message
  switch (response.status) {
    case 401: return `${url.origin} wants a token, and this page sends none.`
    case 404: return `There is no stream at ${url.pathname} yet.`
    case 410: return `What ${url.pathname} began with is gone: a snapshot stands for it.`
    default: return `${url.origin} answered ${response.status}.`
  }
}
