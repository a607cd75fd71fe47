// The page of `examples/browser`, in a Chromium without a window, on streams of the server at `LEAT_URL`.
//
// `LEAT_PAGE` is the folder with the page and its packages, `LEAT_CHROMIUM` the browser. When this prints "replace the
// server", another process on the same store takes the server's place and the old one drains; "kill the server" and
// "start a server" do what they say. A line on stdin says that it is done.

import assert from "node:assert/strict"
import { readFile } from "node:fs/promises"
import http from "node:http"
import { extname, join, normalize } from "node:path"
import { createInterface } from "node:readline"
import { chromium } from "playwright-core"
import { finish, step, until, watchdog } from "./steps.mjs"

const server = process.env.LEAT_URL
const COLUMNS = ["eventsource", "client"]
// What is waited for at most; it comes within moments.
const WAIT_MS = 20_000
// Browsers wait so long before they open an EventSource again, and a little more.
const REOPENED_MS = 3_500

watchdog(100_000)

// Another origin than the server's.

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" }

async function serve(isServed) {
  const files = http.createServer(async (request, response) => {
    const path = normalize(new URL(request.url, "http://page").pathname).replace(/\/$/, "/index.html")
    try {
      if (!isServed(path)) throw new Error("left out")
      const file = await readFile(join(process.env.LEAT_PAGE, path))
      response.setHeader("content-type", TYPES[extname(path)] ?? "application/octet-stream").end(file)
    } catch {
      response.writeHead(404).end()
    }
  })
  await new Promise((resolve) => files.listen(0, "127.0.0.1", resolve))
  return `http://127.0.0.1:${files.address().port}/`
}

const origin = await serve(() => true)
const withoutPackages = await serve((path) => !path.startsWith("/node_modules/"))
const pageOf = (stream, { from = origin, at = server } = {}) =>
  `${from}?${new URLSearchParams({ server: at, stream })}`

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

async function have(what) {
  console.log(what)
  await answers.next()
}

// Another client than the page.

const at = (path) => `${server}/v1/stream/${path}`
const json = (method, body) => ({ method, headers: { "content-type": "application/json" }, body: JSON.stringify(body) })

async function ask(url, request, status) {
  const response = await fetch(url, request)
  assert.equal(response.status, status, `${request.method} ${url}: ${await response.text()}`)
}

const append = (path, ...said) => ask(at(path), json("POST", said.map((say) => ({ say }))), 204)

// Ends with this process, whichever way that goes.
const browser = await chromium.launch({
  executablePath: process.env.LEAT_CHROMIUM,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
})
const page = await browser.newPage({ viewport: { width: 1200, height: 800 } })
page.setDefaultTimeout(WAIT_MS)
const complaints = []
const uncaught = []
const asked = []
page.on("console", (message) => message.type() === "error" && complaints.push(message.text()))
page.on("pageerror", (error) => uncaught.push(error))
page.on("request", (request) => asked.push(request.url()))

const shown = (column) => page.$$eval(`#${column} li`, (items) => items.map((item) => item.textContent))

/** Both columns show this, each message once and in order. */
async function bothShow(expected) {
  for (const column of COLUMNS) {
    const isAll = async () => (await shown(column)).length >= expected.length
    await until(`${column} shows all`, isAll, WAIT_MS).catch(() => {})
    assert.deepEqual(await shown(column), expected, column)
  }
}

async function bothAre(...states) {
  const now = () => Promise.all(COLUMNS.map((column) => page.locator(`#${column}`).getAttribute("data-state")))
  await until(`both are ${states}`, async () => (await now()).every((state) => states.includes(state)), WAIT_MS).catch(
    async (error) => assert.fail(`${error.message}, but ${await now()}`),
  )
}

async function noticed(pattern) {
  await page.locator("#notice").waitFor()
  assert.match(await page.locator("#words").textContent(), pattern)
}

async function send(say) {
  await page.getByLabel("Message").fill(say)
  await page.getByRole("button", { name: "Send" }).click()
}

/** What the page has asked the server for since this many requests. */
const askedSince = (count) => asked.slice(count).filter((url) => url.startsWith(server))

// What both columns are to show.
const said = ["first", "second <b>&amp;", "dritte – größer\nund länger"]

await step("the page loads from another origin, without a complaint", async () => {
  await ask(at("chats/42"), { method: "PUT", headers: { "content-type": "application/json" } }, 201)
  await append("chats/42", ...said.slice(0, 2))
  await append("chats/42", said[2])
  await page.goto(pageOf("chats/42"))
  await bothAre("live")
  assert.equal(await page.locator("#notice").isVisible(), false)
  assert.deepEqual(complaints, [])
})

await step("both columns show what is there, in order", () => bothShow(said))

await step("a message of another client arrives in both", async () => {
  await append("chats/42", "from elsewhere")
  said.push("from elsewhere")
  await bothShow(said)
})

await step("a message sent through the form arrives in both", async () => {
  await send("from the form")
  said.push("from the form")
  await bothShow(said)
  assert.equal(await page.getByLabel("Message").inputValue(), "")
})

await step("a script of another origin reads the headers of answers", async () => {
  const read = (url) =>
    page.evaluate(async (url) => Object.fromEntries((await fetch(url)).headers), url)
  const headers = await read(`${at("chats/42")}?offset=-1`)
  assert.equal(headers["stream-next-offset"], "0000000000000005")
  assert.equal(headers["stream-up-to-date"], "true")
  assert.ok(headers.etag, "an ETag")
  const { "stream-cursor": cursor } = await read(`${at("chats/42")}?offset=-1&live=long-poll`)
  assert.match(cursor, /^\d+$/)
})

await step("both go on where they were when the server ends their windows", async () => {
  // A third reader: an EventSource that is opened once, and left to itself from then on.
  await page.evaluate((url) => {
    const source = new EventSource(url)
    window.alone = { source, seen: [], opened: 0 }
    source.addEventListener("open", () => { window.alone.opened += 1 })
    source.addEventListener("data", ({ data }) => window.alone.seen.push(...JSON.parse(data).map(({ say }) => say)))
  }, `${at("chats/42")}?offset=-1&live=sse`)
  await page.waitForFunction((count) => window.alone.seen.length === count, said.length)

  const before = asked.length
  await have("replace the server")
  await append("chats/42", "after the window")
  said.push("after the window")
  await bothShow(said)
  await bothAre("live")
  const offsets = askedSince(before).filter((url) => url.includes("live=sse"))
  assert.ok(offsets.length >= 2 && offsets.every((url) => url.includes("offset=0000000000000005")), `${offsets}`)
})

await step("an EventSource that is left to itself goes on too", async () => {
  await page.waitForFunction(() => window.alone.opened === 2)
  await page.waitForFunction((count) => window.alone.seen.length >= count, said.length)
  assert.deepEqual(await page.evaluate(() => window.alone.seen), said)
})

await step("both say so while the server is gone, and so does the form", async () => {
  await have("kill the server")
  await bothAre("reconnecting")
  await send("into the void")
  await noticed(/No answer from/)
  assert.equal(await page.getByLabel("Message").inputValue(), "into the void")
})

await step("both go on, with nothing lost and nothing twice, when it is started again", async () => {
  await have("start a server")
  await append("chats/42", "before they are back")
  said.push("before they are back")
  await bothShow(said)
  await bothAre("live")
  await send("and afterwards")
  said.push("and afterwards")
  await bothShow(said)
  assert.equal(await page.locator("#notice").isVisible(), false)
})

await step("the official client comes back when its page has been hidden", async () => {
  const turn = (isHidden) =>
    page.evaluate((isHidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: isHidden })
      document.dispatchEvent(new Event("visibilitychange"))
    }, isHidden)
  await turn(true)
  await append("chats/42", "unseen")
  await until("the other column shows it", async () => (await shown("eventsource")).includes("unseen"), WAIT_MS)
  // It lets go of its connection meanwhile.
  assert.deepEqual(await shown("client"), said)
  said.push("unseen")
  await turn(false)
  await bothShow(said)
})

await step("the page fits a narrow window", async () => {
  await page.setViewportSize({ width: 400, height: 800 })
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 400)
  await page.setViewportSize({ width: 1200, height: 800 })
})

await step("a stream that is closed is shown as closed, and not asked for any more", async () => {
  await page.getByRole("button", { name: "Close the stream" }).click()
  await bothAre("closed")
  assert.ok(await page.getByRole("button", { name: "Send" }).isDisabled())
  // The third reader comes back once, and is told to stay away.
  await page.waitForFunction(() => window.alone.source.readyState === EventSource.CLOSED)
  assert.deepEqual(await page.evaluate(() => window.alone.seen), said)
  const before = asked.length
  await new Promise((resolve) => setTimeout(resolve, REOPENED_MS))
  assert.deepEqual(askedSince(before), [])
})

await step("a stream that was closed before is shown, and as closed", async () => {
  await page.goto(pageOf("chats/42"))
  await bothAre("closed")
  await bothShow(said)
  assert.ok(await page.getByRole("button", { name: "Send" }).isDisabled())
})

await step("a stream that is not there is named, and made on request", async () => {
  await page.goto(pageOf("chats/none"))
  await noticed(/no stream at \/v1\/stream\/chats\/none/)
  await page.getByRole("button", { name: "Create it" }).click()
  await bothAre("live")
  await send("hello")
  await bothShow(["hello"])
})

await step("a stream in a bucket works likewise, bucket and all", async () => {
  await page.goto(pageOf("/ds/rooms/a b"))
  await noticed(/no stream at \/ds\/rooms\/a%20b/)
  await page.getByRole("button", { name: "Create it" }).click()
  await bothAre("live")
  await send("hello")
  await bothShow(["hello"])
})

await step("a stream that is deleted ends both, with the reason", async () => {
  await ask(`${server}/ds/rooms/a%20b`, { method: "DELETE" }, 204)
  await bothAre("failed")
  for (const column of COLUMNS) {
    assert.match(await page.locator(`#${column} .why`).textContent(), /no stream|does not exist/)
  }
})

await step("a stream of another type is named", async () => {
  await ask(at("chats/text"), { method: "PUT", headers: { "content-type": "text/plain" } }, 201)
  await page.goto(pageOf("chats/text"))
  await noticed(/shows streams of application\/json; .* is one of text\/plain/)
})

await step("a server that is not there is named", async () => {
  const closed = await new Promise((resolve) => {
    const taken = http.createServer().listen(0, "127.0.0.1", () => {
      const { port } = taken.address()
      taken.close(() => resolve(`http://127.0.0.1:${port}`))
    })
  })
  await page.goto(pageOf("chats/42", { at: closed }))
  await noticed(/No answer from/)
  await page.getByRole("button", { name: "Try again" }).waitFor()
})

await step("without the packages, EventSource works and the page says what to do", async () => {
  await page.goto(pageOf("chats/none", { from: withoutPackages }))
  await until("the message is there", async () => (await shown("eventsource")).length === 1, WAIT_MS)
  await page.getByText("npm install").waitFor()
})

await step("nothing was thrown that nobody caught", async () => {
  assert.deepEqual(uncaught, [])
})

await browser.close()
finish()
