// Numbered steps, of which the first that fails ends the process with a non-zero code.

let passed = 0

/** Runs one step. */
export async function step(name, body) {
  try {
    await body()
  } catch (error) {
    console.error(`FAILED: ${name}`)
    console.error(error)
    process.exit(1)
  }
  passed += 1
  console.log(`ok ${passed} ${name}`)
}

/** Ends the process with an error if it has not ended by then. */
export function watchdog(ms) {
  setTimeout(() => {
    console.error(`FAILED: no end after ${ms} ms`)
    process.exit(1)
  }, ms)
}

/** The last line, which the test counts, and the end. */
export function finish() {
  console.log(`${passed} steps passed`)
  process.exit(0)
}

/** Asks again until it is so. */
export async function until(what, isSo, ms = 10_000) {
  const end = Date.now() + ms
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`${what}: not after ${ms} ms`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
