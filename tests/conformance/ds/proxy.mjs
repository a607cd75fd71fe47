// Shows the streams of one bucket under the paths that the public suite asks for.
//
// `/v1/stream/{name}` becomes `/ds/{bucket}/{name}` on the way in, in the path and where a fork names its source;
// `location` is turned back on the way out. Everything else passes as it is, as it comes.

import http from "node:http"

const ANY = "/v1/stream/"

export async function proxy(target, bucket) {
  const { hostname, port } = new URL(target)
  const inward = (path) => (path.startsWith(ANY) ? `/ds/${bucket}/${path.slice(ANY.length)}` : path)
  const agent = new http.Agent({ keepAlive: true })
  const server = http.createServer((request, response) => {
    const headers = { ...request.headers }
    const source = headers["stream-forked-from"]
    if (source) headers["stream-forked-from"] = inward(source)
    const options = { hostname, port, agent, method: request.method, path: inward(request.url), headers }
    const onward = http.request(options, (answer) => {
      const out = { ...answer.headers }
      if (out.location) out.location = out.location.replace(`/ds/${bucket}/`, ANY)
      response.writeHead(answer.statusCode, out)
      answer.pipe(response)
    })
    onward.on("error", () => response.destroy())
    response.on("close", () => onward.destroy())
    request.pipe(onward)
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  server.unref()
  return `http://127.0.0.1:${server.address().port}`
}
