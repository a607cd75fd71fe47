// What the scripts share: numbered steps of which the first that fails ends the process with a non-zero code, and
// short words for the SDK's types.

import assert from "node:assert/strict";
import { AppendInput, AppendRecord, S2Error } from "@s2-dev/streamstore";

let passed = 0;

/** Runs one step. */
export async function step(name, body) {
  try {
    await body();
  } catch (error) {
    console.error(`FAILED: ${name}`);
    console.error(error);
    process.exit(1);
  }
  passed += 1;
  console.log(`ok ${passed} ${name}`);
}

/** Ends the process with an error if it has not ended by then. */
export function watchdog(ms) {
  setTimeout(() => {
    console.error(`FAILED: no end after ${ms} ms`);
    process.exit(1);
  }, ms);
}

/** The last line, which the test counts, and the end. */
export function finish() {
  console.log(`${passed} steps passed`);
  process.exit(0);
}

/** A batch of text records. */
export const input = (bodies, options) =>
  AppendInput.create(bodies.map((body) => AppendRecord.string({ body })), options);

/** A read from a sequence number. */
export const from = (seqNum) => ({ start: { from: { seqNum } } });

/** Whether an error is the SDK's, with this status and perhaps this code. */
export const refused = (status, code) => (error) => {
  assert.ok(error instanceof S2Error, `an S2Error, not ${error}`);
  assert.equal(error.status, status);
  if (code !== undefined) assert.equal(error.code, code);
  return true;
};

/** The promise, or an error after so long. */
export const within = (promise, ms, what) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing after ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};
