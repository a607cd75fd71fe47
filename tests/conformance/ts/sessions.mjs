// The official TypeScript SDK over its default transport on Node: append and read sessions in s2s frames over
// HTTP/2.
//
// Reads S2_ACCOUNT_ENDPOINT, S2_BASIN_ENDPOINT and S2_ACCESS_TOKEN. When it prints "replace the server", another
// process on the same store takes the server's place, and an answer of one line on stdin says so.

import assert from "node:assert/strict";
import { once } from "node:events";
import {
  AppendInput,
  AppendRecord,
  BatchTransform,
  FencingTokenMismatchError,
  Producer,
  RangeNotSatisfiableError,
  S2,
  S2Environment,
  SeqNumMismatchError,
} from "@s2-dev/streamstore";
import { finish, from, input, refused, step, watchdog, within } from "./steps.mjs";

const WAIT_MS = 20_000;
const PIPELINED = 200;

const s2 = new S2(S2Environment.parse());
const unique = `${Date.now().toString(36)}-${process.pid}`;
const basinName = `sessions-${unique}`;
const basin = s2.basin(basinName);
const stream = basin.stream("orders/42 – größer");

watchdog(120_000);

/** The records of a session that ends by itself. */
const all = async (session) => {
  const records = [];
  for await (const record of session) records.push(record);
  return records;
};
const seqNums = (records) => records.map((record) => record.seqNum);
const bodies = (records) => records.map((record) => record.body);
const range = (start, end) => Array.from({ length: end - start }, (_, index) => start + index);
const tail = async () => (await stream.checkTail()).tail.seqNum;
const unwritten = (at) => (error) => {
  assert.ok(error instanceof RangeNotSatisfiableError, `a RangeNotSatisfiableError, not ${error}`);
  assert.equal(error.status, 416);
  assert.equal(error.tail?.seqNum, at);
  return true;
};

await step("create a basin and a stream", async () => {
  await s2.basins.create({ basin: basinName });
  await basin.streams.create({ stream: stream.name });
});

// Append sessions.

await step("pipelined inputs are acknowledged in order", async () => {
  const session = await stream.appendSession();
  const tickets = [];
  for (const index of range(0, PIPELINED)) tickets.push(await session.submit(input([`a${index}`, `b${index}`])));
  const acks = await within(Promise.all(tickets.map((ticket) => ticket.ack())), WAIT_MS, "acks");
  assert.deepEqual(acks.map((ack) => ack.start.seqNum), range(0, PIPELINED).map((index) => 2 * index));
  assert.ok(acks.every((ack) => ack.end.seqNum === ack.start.seqNum + 2 && ack.tail.seqNum >= ack.end.seqNum));
  assert.equal(session.lastAckedPosition()?.end.seqNum, 2 * PIPELINED);
  await session.close();
  assert.equal(await tail(), 2 * PIPELINED);
});

await step("pipelined inputs may each expect the number the one before leads to", async () => {
  const session = await stream.appendSession();
  const tickets = [];
  for (const seqNum of range(400, 450)) tickets.push(await session.submit(input([`m${seqNum}`], { matchSeqNum: seqNum })));
  const acks = await Promise.all(tickets.map((ticket) => ticket.ack()));
  assert.deepEqual(acks.map((ack) => ack.start.seqNum), range(400, 450));
  await session.close();
});

await step("the first refused input ends the session, and none after it is written", async () => {
  const session = await stream.appendSession();
  const good = await session.submit(input(["good"], { matchSeqNum: 450 }));
  const late = await session.submit(input(["late"], { matchSeqNum: 0 }));
  const after = await session.submit(input(["after"]));
  const outcomes = await Promise.allSettled([good.ack(), late.ack(), after.ack()]);
  assert.deepEqual(outcomes.map((outcome) => outcome.status), ["fulfilled", "rejected", "rejected"]);
  assert.ok(outcomes[1].reason instanceof SeqNumMismatchError, `${outcomes[1].reason}`);
  assert.equal(outcomes[1].reason.expectedSeqNum, 451);
  assert.ok(session.failureCause() instanceof SeqNumMismatchError);
  await session.close().catch(() => {});
  assert.equal(await tail(), 451);
});

await step("a fence set in a session holds for the inputs behind it", async () => {
  const session = await stream.appendSession();
  const tickets = [
    await session.submit(AppendInput.create([AppendRecord.fence("writer-1")])),
    await session.submit(input(["mine"], { fencingToken: "writer-1" })),
    await session.submit(input(["theirs"], { fencingToken: "writer-2" })),
  ];
  const outcomes = await Promise.allSettled(tickets.map((ticket) => ticket.ack()));
  assert.deepEqual(outcomes.map((outcome) => outcome.status), ["fulfilled", "fulfilled", "rejected"]);
  assert.ok(outcomes[2].reason instanceof FencingTokenMismatchError, `${outcomes[2].reason}`);
  assert.equal(outcomes[2].reason.expectedFencingToken, "writer-1");
  await session.close().catch(() => {});
  assert.equal(await tail(), 453);
});

await step("a producer batches single records", async () => {
  const producer = new Producer(new BatchTransform({ matchSeqNum: 453 }), await stream.appendSession());
  const tickets = [];
  for (const index of range(0, 1_500)) tickets.push(await producer.submit(AppendRecord.string({ body: `p${index}` })));
  await within(producer.flush(), WAIT_MS, "flush");
  const acks = await Promise.all(tickets.map((ticket) => ticket.ack()));
  assert.deepEqual(acks.map((ack) => ack.seqNum()), range(453, 1_953));
  await producer.close();
});

await step("batches of the largest size go through one session", async () => {
  const large = basin.stream("large");
  await basin.streams.create({ stream: "large" });
  const body = new Uint8Array((1 << 20) - 8);
  const session = await large.appendSession();
  const tickets = [];
  for (const index of range(0, 8)) {
    tickets.push(await session.submit(AppendInput.create([AppendRecord.bytes({ body: body.fill(index) })])));
    await tickets.at(-1).ack();
  }
  await session.close();
  const records = await all(await large.readSession({ ...from(0), stop: { limits: { count: 8 } } }, { as: "bytes" }));
  assert.deepEqual(seqNums(records), range(0, 8));
  assert.ok(records.every((record) => record.body.length === body.length && record.body.at(-1) === record.seqNum));
});

await step("frames may be compressed in both directions", async () => {
  const client = new S2({ ...S2Environment.parse(), compression: "gzip" });
  const zipped = client.basin(basinName).stream("zipped");
  await basin.streams.create({ stream: "zipped" });
  const session = await zipped.appendSession();
  const ticket = await session.submit(input(range(0, 100).map((index) => `${index}:${"x".repeat(1_000)}`)));
  assert.equal((await ticket.ack()).end.seqNum, 100);
  await session.close();
  const records = await all(await zipped.readSession({ ...from(0), stop: { waitSecs: 0 } }));
  assert.equal(records.length, 100);
  assert.equal(records[99].body, `99:${"x".repeat(1_000)}`);
  await zipped.close();
});

await step("a session on a missing stream is refused", async () => {
  const session = await basin.stream("none").appendSession();
  await assert.rejects(async () => (await session.submit(input(["x"]))).ack(), refused(404, "stream_not_found"));
  await session.close().catch(() => {});
  await assert.rejects(
    async () => all(await basin.stream("none").readSession(from(0))),
    refused(404, "stream_not_found"),
  );
});

await step("a session creates its stream where the basin says so", async () => {
  await s2.basins.reconfigure({ basin: basinName, createStreamOnAppend: true });
  const demand = basin.stream("on-demand");
  const session = await demand.appendSession({ streamConfig: { retentionPolicy: { ageSecs: 3_600 } } });
  assert.equal((await (await session.submit(input(["first"]))).ack()).start.seqNum, 0);
  await session.close();
  assert.equal((await basin.streams.getConfig({ stream: "on-demand" })).retentionPolicy?.ageSecs, 3_600);
});

// Read sessions.

await step("a session without a wait reads to the tail and ends", async () => {
  const records = await all(await stream.readSession({ ...from(0), stop: { waitSecs: 0 } }));
  assert.deepEqual(seqNums(records), range(0, 1_953));
  assert.deepEqual(bodies(records.slice(0, 4)), ["a0", "b0", "a1", "b1"]);
  assert.equal(records[1_952].body, "p1499");
});

await step("a session ends at its count and at its bytes", async () => {
  const counted = await all(await stream.readSession({ ...from(10), stop: { limits: { count: 1_200 } } }));
  assert.deepEqual(seqNums(counted), range(10, 1_210));
  const bytes = 3 * (8 + "a0".length);
  assert.deepEqual(seqNums(await all(await stream.readSession({ ...from(0), stop: { limits: { bytes } } }))), [0, 1, 2]);
});

await step("command records are delivered, and left out on request", async () => {
  const stop = { limits: { count: 2 } };
  const records = await all(await stream.readSession({ ...from(451), stop }));
  assert.deepEqual(records[0].headers.map((header) => [...header]), [["", "fence"]]);
  assert.deepEqual(bodies(records), ["writer-1", "mine"]);
  const data = await all(await stream.readSession({ ...from(451), stop, ignoreCommandRecords: true }));
  assert.deepEqual(seqNums(data), [452]);
});

await step("a start beyond the tail, or at it without a wait, is a 416", async () => {
  await assert.rejects(async () => all(await stream.readSession(from(5_000))), unwritten(1_953));
  const bounded = { ...from(1_953), stop: { limits: { count: 1 } } };
  await assert.rejects(async () => all(await stream.readSession(bounded)), unwritten(1_953));
});

await step("a clamped start waits at the tail, and ends empty", async () => {
  const session = await stream.readSession({ start: { from: { seqNum: 5_000 }, clamp: true }, stop: { waitSecs: 1 } });
  assert.deepEqual(await within(all(session), WAIT_MS, "the end of the wait"), []);
});

await step("a session catches up and follows", async () => {
  const session = await stream.readSession(from(1_950));
  const seen = [];
  const following = (async () => {
    for await (const record of session) {
      seen.push(record.body);
      if (seen.length === 6) break;
    }
  })();
  const caughtUp = await within(session.caughtUp(), WAIT_MS, "catching up");
  assert.equal(caughtUp.seqNum, 1_953);
  const appends = await stream.appendSession();
  for (const body of ["f0", "f1", "f2"]) await (await appends.submit(input([body]))).ack();
  await appends.close();
  await within(following, WAIT_MS, "following");
  assert.deepEqual(seen, ["p1497", "p1498", "p1499", "f0", "f1", "f2"]);
});

await step("a trim in a session drops what is before it", async () => {
  const session = await stream.appendSession();
  await (await session.submit(AppendInput.create([AppendRecord.trim(1_956)]))).ack();
  await session.close();
  assert.deepEqual(seqNums(await all(await stream.readSession({ ...from(0), stop: { waitSecs: 0 } }))), [1_956]);
});

// Another process takes over.

await step("open sessions go on when the server is replaced", async () => {
  const appends = await stream.appendSession();
  const reads = await stream.readSession(from(1_957));
  const seen = [];
  const following = (async () => {
    for await (const record of reads) {
      seen.push([record.seqNum, record.body]);
      if (seen.length === 3) break;
    }
  })();
  await (await appends.submit(input(["before"], { matchSeqNum: 1_957 }))).ack();
  console.log("replace the server");
  await once(process.stdin, "data");
  for (const [index, body] of ["after", "later"].entries()) {
    const ticket = await appends.submit(input([body], { matchSeqNum: 1_958 + index }));
    assert.equal((await within(ticket.ack(), WAIT_MS, "an ack of the next process")).start.seqNum, 1_958 + index);
  }
  await within(following, WAIT_MS, "following the next process");
  assert.deepEqual(seen, [[1_957, "before"], [1_958, "after"], [1_959, "later"]]);
  await appends.close();
});

// The rest.

await step("there is a default location, and it is listed", async () => {
  const location = await s2.locations.getDefault();
  assert.ok((await s2.locations.list()).some((info) => info.name === location.name));
});

await step("a follower of a deleted stream is told", async () => {
  await s2.basins.reconfigure({ basin: basinName, createStreamOnAppend: false });
  const session = await stream.readSession({ start: { from: { tailOffset: 1 } } });
  const told = assert.rejects(all(session), refused(404, "stream_not_found"));
  await within(session.caughtUp(), WAIT_MS, "catching up");
  await basin.streams.delete({ stream: stream.name });
  await within(told, WAIT_MS, "the end of a deleted stream");
});

await step("a deleted basin goes away", async () => {
  await s2.basins.delete({ basin: basinName });
  await assert.rejects(s2.basins.getConfig({ basin: basinName }), refused(404, "basin_not_found"));
});

await stream.close();
finish();
