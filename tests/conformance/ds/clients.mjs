// Published clients of Durable Streams against `LEAT_URL`, one scenario each.

import assert from "node:assert/strict"
import http from "node:http"
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { createStateSchema } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { createDurableChatTransport, toDurableStreamResponse } from "@durable-streams/aisdk-transport"
import * as tanstack from "@durable-streams/tanstack-ai-transport"
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import * as Y from "yjs"
import { finish, step, until, watchdog } from "./steps.mjs"

const base = process.env.LEAT_URL
const at = (path) => `${base}/v1/stream/${path}`

watchdog(120_000)

// The client.

const bytes = (text) => new TextEncoder().encode(text)

await step("client: creates, appends, reads", async () => {
  const handle = await DurableStream.create({ url: at("client/text"), contentType: "text/plain" })
  for (const text of ["a", "b", "c"]) await handle.append(text)
  const read = await stream({ url: at("client/text"), offset: "-1", live: false })
  assert.equal(await read.text(), "abc")
})

await step("client: an existing stream of another type is a conflict", async () => {
  const again = DurableStream.create({ url: at("client/text"), contentType: "application/json" })
  await assert.rejects(again, (error) => error.status === 409)
})

await step("client: follows by long-poll from where it has read to", async () => {
  const handle = new DurableStream({ url: at("client/text"), contentType: "text/plain" })
  const { offset } = await handle.head()
  const abort = new AbortController()
  const live = await stream({ url: at("client/text"), offset, live: "long-poll", signal: abort.signal })
  let seen = ""
  live.subscribeText((chunk) => { seen += chunk.text })
  await handle.append("d")
  await handle.append("e")
  await until("both", () => seen === "de")
  abort.abort()
})

await step("client: follows by events, JSON by JSON, up to the end", async () => {
  const handle = await DurableStream.create({ url: at("client/json"), contentType: "application/json" })
  const live = await stream({ url: at("client/json"), offset: "-1", live: "sse", json: true })
  const seen = []
  live.subscribeJson((batch) => { seen.push(...batch.items) })
  await handle.append(JSON.stringify({ n: 1 }))
  await handle.append(JSON.stringify([2, 3]))
  await handle.close()
  await live.closed
  assert.deepEqual(seen, [{ n: 1 }, [2, 3]])
})

await step("client: follows bytes by events", async () => {
  const handle = await DurableStream.create({ url: at("client/bytes"), contentType: "application/octet-stream" })
  const sent = Uint8Array.from({ length: 1000 }, (_, n) => (n * 7) % 256)
  await handle.append(sent)
  await handle.close()
  const live = await stream({ url: at("client/bytes"), offset: "-1", live: "sse" })
  const parts = []
  for await (const part of live.bodyStream()) parts.push(part)
  assert.deepEqual(Buffer.concat(parts), Buffer.from(sent))
})

await step("client: a producer writes every message once and in order", async () => {
  const handle = await DurableStream.create({ url: at("client/produced"), contentType: "application/json" })
  const producer = new IdempotentProducer(handle, "producer-1", { lingerMs: 1, maxBatchBytes: 256 })
  for (let n = 0; n < 500; n += 1) producer.append(JSON.stringify({ n }))
  await producer.flush()
  const read = await stream({ url: at("client/produced"), offset: "-1", live: false })
  assert.deepEqual(await read.json(), Array.from({ length: 500 }, (_, n) => ({ n })))
})

await step("client: a producer of a later epoch shuts the earlier out", async () => {
  const handle = new DurableStream({ url: at("client/produced"), contentType: "application/json" })
  const later = new IdempotentProducer(handle, "producer-1", { epoch: 1, lingerMs: 1 })
  later.append(JSON.stringify({ later: true }))
  await later.flush()
  const errors = []
  const earlier = new IdempotentProducer(handle, "producer-1", { epoch: 0, lingerMs: 1, onError: (e) => errors.push(e) })
  earlier.append(JSON.stringify({ earlier: true }))
  await earlier.flush().catch((error) => errors.push(error))
  assert.ok(errors.some((error) => error.name === "StaleEpochError"), `${errors}`)
})

await step("client: a producer gives up on a closed stream at once", async () => {
  const handle = await DurableStream.create({ url: at("client/closed"), contentType: "text/plain" })
  await handle.close()
  let requests = 0
  const counted = (...args) => { requests += 1; return fetch(...args) }
  const errors = []
  const late = new DurableStream({ url: at("client/closed"), contentType: "text/plain", fetch: counted })
  const producer = new IdempotentProducer(late, "late", { lingerMs: 1, fetch: counted, onError: (e) => errors.push(e) })
  producer.append("too late")
  await producer.flush().catch((error) => errors.push(error))
  assert.ok(errors.length > 0)
  assert.ok(requests <= 3, `${requests} requests`)
})

await step("client: sends a stream of unknown length", async () => {
  const handle = await DurableStream.create({ url: at("client/streamed"), contentType: "text/plain" })
  async function* parts() { for (const part of ["one ", "two ", "three"]) yield part }
  await handle.appendStream(parts())
  const read = await stream({ url: at("client/streamed"), offset: "-1", live: false })
  assert.equal(await read.text(), "one two three")
})

await step("client: deletes, and creates anew", async () => {
  const handle = new DurableStream({ url: at("client/text"), contentType: "text/plain" })
  await handle.delete()
  assert.equal((await fetch(at("client/text"), { method: "HEAD" })).status, 404)
  const anew = await DurableStream.create({ url: at("client/text"), contentType: "text/plain", body: bytes("new") })
  const read = await stream({ url: anew.url, offset: "-1", live: false })
  assert.equal(await read.text(), "new")
})

// Buckets, with the same client.

await step("client: works in a bucket, which must be there", async () => {
  const url = `${base}/ds/clients/a`
  await assert.rejects(DurableStream.create({ url, contentType: "text/plain" }), (error) => error.status === 404 || error.code === "NOT_FOUND")
  assert.equal((await fetch(`${base}/ds/clients`, { method: "PUT" })).status, 201)
  const handle = await DurableStream.create({ url, contentType: "text/plain" })
  await handle.append("x")
  const listed = await (await fetch(`${base}/ds/clients/streams`)).json()
  assert.deepEqual(listed.streams.map((s) => [s.stream_id, s.status, s.tail_offset]), [["a", "open", 1]])
})

// State: a database in a stream.

const any = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } }
const schema = createStateSchema({ users: { schema: any, type: "user", primaryKey: "id" } })
const database = () => createStreamDB({
  streamOptions: { url: at("state/db"), contentType: "application/json" },
  live: "sse",
  state: schema,
})

await step("state: loads what is there", async () => {
  const handle = await DurableStream.create({ url: at("state/db"), contentType: "application/json" })
  for (const id of ["1", "2"]) {
    await handle.append(JSON.stringify(schema.users.insert({ value: { id, name: `user ${id}` } })))
  }
  const db = database()
  await db.preload()
  assert.deepEqual([...db.collections.users.keys()].sort(), ["1", "2"])
  db.close()
})

await step("state: follows changes", async () => {
  const db = database()
  await db.preload()
  const handle = new DurableStream({ url: at("state/db"), contentType: "application/json" })
  await handle.append(JSON.stringify(schema.users.update({ value: { id: "1", name: "changed" } })))
  await handle.append(JSON.stringify(schema.users.delete({ key: "2" })))
  await until("both changes", () => db.collections.users.get("1")?.name === "changed" && !db.collections.users.has("2"))
  db.close()
})

// AI SDK.

async function* words(...texts) {
  yield { type: "start", messageId: "m1" }
  yield { type: "text-start", id: "t" }
  for (const delta of texts) yield { type: "text-delta", id: "t", delta }
  yield { type: "text-end", id: "t" }
  yield { type: "finish" }
}

const api = http.createServer(async (request, response) => {
  let url = at(`ai/${request.url.slice(1)}`)
  for await (const _ of request);
  const answer = await toDurableStreamResponse({
    source: words("Hello", ", ", "world"),
    stream: { writeUrl: url, createIfMissing: true },
    mode: "await",
  })
  response.writeHead(answer.status, Object.fromEntries(answer.headers))
  response.end(Buffer.from(await answer.arrayBuffer()))
})
await new Promise((resolve) => api.listen(0, "127.0.0.1", resolve))
const apiUrl = `http://127.0.0.1:${api.address().port}`

const textOf = (chunks) => chunks.filter((c) => c.type === "text-delta").map((c) => c.delta).join("")

await step("ai sdk: an answer goes through a stream", async () => {
  const transport = createDurableChatTransport({ api: `${apiUrl}/chat-1` })
  const sent = { trigger: "submit-message", chatId: "chat-1", messages: [{ id: "u", role: "user", parts: [] }] }
  const chunks = []
  for await (const chunk of await transport.sendMessages(sent)) chunks.push(chunk)
  assert.equal(textOf(chunks), "Hello, world")
  assert.equal(chunks.at(-1).type, "finish")
})

await step("ai sdk: the stream is complete and closed", async () => {
  const head = await fetch(at("ai/chat-1"), { method: "HEAD" })
  assert.equal(head.headers.get("stream-closed"), "true")
  const all = await (await fetch(at("ai/chat-1"))).json()
  assert.equal(textOf(all), "Hello, world")
})

// TanStack AI.

async function* chunks(...contents) {
  yield { type: "RUN_STARTED", runId: "r" }
  yield { type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant" }
  for (const delta of contents) yield { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta }
  yield { type: "TEXT_MESSAGE_END", messageId: "a1" }
  yield { type: "RUN_FINISHED", runId: "r" }
}

await step("tanstack ai: a session keeps what was asked and answered", async () => {
  const answer = await tanstack.toDurableChatSessionResponse({
    stream: { writeUrl: at("tanstack/session"), createIfMissing: true },
    newMessages: [{ id: "u1", role: "user", parts: [{ type: "text", content: "hi" }] }],
    responseStream: chunks("Hel", "lo"),
    mode: "await",
  })
  assert.ok(answer.ok, `${answer.status}`)
  const stored = await (await fetch(at("tanstack/session"))).json()
  assert.ok(stored.some((chunk) => chunk.type === "RUN_FINISHED"))
})

await step("tanstack ai: a connection is shown the session and follows it", async () => {
  const connection = tanstack.durableStreamConnection({ sendUrl: apiUrl, readUrl: at("tanstack/session") })
  const abort = new AbortController()
  const seen = []
  const reading = (async () => {
    for await (const chunk of connection.subscribe(abort.signal)) seen.push(chunk)
  })().catch((error) => { if (!abort.signal.aborted) throw error })
  await until("the snapshot", () => seen.some((chunk) => chunk.type === "MESSAGES_SNAPSHOT"))
  await tanstack.toDurableChatSessionResponse({
    stream: { writeUrl: at("tanstack/session") },
    newMessages: [{ id: "u2", role: "user", parts: [{ type: "text", content: "again" }] }],
    responseStream: chunks("more"),
    mode: "await",
  })
  await until("the second answer", () => seen.some((chunk) => chunk.delta === "more"))
  abort.abort()
  await reading
})

await step("tanstack ai: a page is made of what is stored", async () => {
  const { messages, offset } = await tanstack.materializeSnapshotFromDurableStream({ readUrl: at("tanstack/session") })
  assert.ok(messages.length >= 2, JSON.stringify(messages))
  assert.match(offset, /^[0-9a-f]{16}$/)
})

// Yjs.

const yjs = new YjsServer({ port: 0, dsServerUrl: base, compactionThreshold: 4096 })
await yjs.start()
const provide = (doc) => new YjsProvider({ doc, baseUrl: `${yjs.url}/v1/yjs/service`, docId: "notes/today" })
const synced = (provider) => until("synced", () => provider.synced)

await step("yjs: two documents become the same", async () => {
  const [one, two] = [new Y.Doc(), new Y.Doc()]
  const [left, right] = [provide(one), provide(two)]
  await synced(left)
  await synced(right)
  one.getText("t").insert(0, "hello")
  await until("the other sees it", () => two.getText("t").toString() === "hello")
  two.getText("t").insert(5, " world")
  await until("and answers", () => one.getText("t").toString() === "hello world")
  left.destroy()
  right.destroy()
})

await step("yjs: a document that comes later gets all of it", async () => {
  const doc = new Y.Doc()
  const provider = provide(doc)
  await synced(provider)
  await until("the text", () => doc.getText("t").toString() === "hello world")
  provider.destroy()
})

await step("yjs: a document is compacted and still read", async () => {
  const doc = new Y.Doc()
  const provider = provide(doc)
  await synced(provider)
  await until("the text", () => doc.getText("t").toString() === "hello world")
  for (let n = 0; n < 40; n += 1) {
    doc.getArray("a").push(["x".repeat(200)])
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  const isSnapshot = async () => (await (await fetch(at("yjs/service/docs/notes/today/.index"))).text()).length > 2
  await until("a snapshot", isSnapshot)
  provider.destroy()
  const later = new Y.Doc()
  const second = provide(later)
  await synced(second)
  await until("everything", () => later.getArray("a").length === 40)
  second.destroy()
})

await step("yjs: the documents lie in the default bucket", async () => {
  const listed = await (await fetch(`${base}/ds/_default/streams?prefix=${encodeURIComponent("yjs/service/")}`)).json()
  assert.ok(listed.streams.some((s) => s.stream_id.endsWith("notes/today/.updates")), JSON.stringify(listed))
})

finish()
