// The page: its fields, its two columns, and what it says when something is wrong.

import * as streams from "./stream.js"
import { follow as byEventSource } from "./eventsource.js"

const MESSAGES_MAX = 500
const STATES = {
  idle: "not reading",
  connecting: "connecting",
  live: "live",
  reconnecting: "connecting again",
  closed: "closed",
  failed: "stopped",
}

const element = (id) => document.getElementById(id)
const open = element("open")
const compose = element("compose")

/** One column. */
class View {
  constructor(column) {
    this.root = column
    this.list = column.querySelector("ol")
    this.clear()
  }

  clear() {
    this.list.replaceChildren()
    this.count = 0
    this.root.querySelector(".offset").textContent = ""
    this.state("idle")
  }

  state(name, why = "") {
    this.root.dataset.state = name
    this.root.querySelector(".state").textContent = STATES[name]
    this.root.querySelector(".why").textContent = why
    if (name === "closed") takeMessages(false)
  }

  add(messages, offset) {
    const { list } = this
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40
    list.append(...messages.map((message) => this.item(message)))
    while (list.children.length > MESSAGES_MAX) list.firstElementChild.remove()
    if (isAtEnd) list.scrollTop = list.scrollHeight
    this.root.querySelector(".offset").textContent = offset
  }

  item(message) {
    const item = document.createElement("li")
    const isSaid = typeof message?.say === "string"
    item.value = ++this.count
    item.className = isSaid ? "said" : "json"
    item.textContent = isSaid ? message.say : JSON.stringify(message)
    return item
  }
}

/** A view whose column has been given to another stream takes nothing any more. */
function during(isCurrent, view) {
  return {
    state: (...given) => isCurrent() && view.state(...given),
    add: (...given) => isCurrent() && view.add(...given),
  }
}

const views = [new View(element("eventsource")), new View(element("client"))]
let url
let stops = []
let turn = 0

function takeMessages(does) {
  for (const control of compose.elements) control.disabled = !does
}

/** Says what is wrong, and offers what may help. */
function notice(text, [label, act] = []) {
  element("notice").hidden = !text
  element("words").textContent = text ?? ""
  const button = element("help")
  button.hidden = !label
  button.textContent = label ?? ""
  button.onclick = act && (() => attempt(act))
}

async function attempt(act) {
  try {
    await act()
  } catch (error) {
    if (error.status === 404) notice(error.message, ["Create it", createAndShow])
    else if (error.status === 0) notice(error.message, ["Try again", show])
    else notice(error.message)
  }
}

/** Follows the stream that the fields name, in both columns. */
async function show() {
  const mine = ++turn
  for (const stop of stops) stop()
  stops = []
  for (const view of views) view.clear()
  notice()
  takeMessages(false)

  const { server, stream } = Object.fromEntries(new FormData(open))
  history.replaceState(null, "", `?${new URLSearchParams({ server, stream })}`)
  if (!URL.canParse(server)) throw new Error(`“${server}” is not the address of a server.`)
  url = streams.address(server, stream)

  const { contentType, isClosed } = await streams.status(url)
  if (mine !== turn) return
  if (!contentType.startsWith(streams.CONTENT_TYPE)) {
    throw new Error(`This page shows streams of ${streams.CONTENT_TYPE}; ${url.pathname} is one of ${contentType}.`)
  }
  takeMessages(!isClosed)

  const [first, second] = views.map((view) => during(() => mine === turn, view))
  stops.push(byEventSource(url, first))
  try {
    const { follow } = await import("./client.js")
    if (mine === turn) stops.push(follow(url, second))
  } catch {
    second.state("failed", "The client is not installed. Run npm install beside this page, and load it again.")
  }
}

async function createAndShow() {
  await streams.create(url)
  await show()
}

open.addEventListener("submit", (event) => {
  event.preventDefault()
  attempt(show)
})

compose.addEventListener("submit", (event) => {
  event.preventDefault()
  const field = compose.elements.say
  const say = field.value.trim()
  if (!say) return
  attempt(async () => {
    await streams.append(url, { say })
    notice()
    field.value = ""
    field.focus()
  })
})

element("close").addEventListener("click", () => attempt(() => streams.close(url)))

const given = new URLSearchParams(location.search)
for (const name of ["server", "stream"]) {
  if (given.has(name)) open.elements[name].value = given.get(name)
}
attempt(show)
