// A session with the official TypeScript SDK over the transport that the argument names: each step asserts what
// the API promises, and the first wrong answer ends the process with a non-zero code.
//
// Reads S2_ACCOUNT_ENDPOINT, S2_BASIN_ENDPOINT and S2_ACCESS_TOKEN.

import assert from "node:assert/strict";
import {
  AppendInput,
  AppendRecord,
  FencingTokenMismatchError,
  RangeNotSatisfiableError,
  S2,
  S2Environment,
  S2Error,
  SeqNumMismatchError,
} from "@s2-dev/streamstore";
import { finish, from, input, refused, step, watchdog, within } from "./steps.mjs";

const WATCHDOG_MS = 120_000;
const FOLLOW_MS = 20_000;

// "fetch": single requests and server-sent events; "s2s": sessions over HTTP/2.
const transport = process.argv[2] ?? "fetch";
const s2 = new S2(S2Environment.parse());
const unique = `${Date.now().toString(36)}-${process.pid}`;
const basinName = `sdk-${unique}`;
const autoName = `sdk-auto-${unique}`;
const streamName = "orders/42 – größer";
const basin = s2.basin(basinName);
const stream = basin.stream(streamName, { forceTransport: transport });
const text = new TextEncoder();

watchdog(WATCHDOG_MS);

const records = (...bodies) => bodies.map((body) => AppendRecord.string({ body }));
const append = (bodies, options) => stream.append(input(bodies, options));
const bodies = (batch) => batch.records.map((record) => record.body);
const seqNums = (batch) => batch.records.map((record) => record.seqNum);

// Basins.

await step("create a basin", async () => {
  const info = await s2.basins.create({
    basin: basinName,
    config: { defaultStreamConfig: { retentionPolicy: { ageSecs: 86_400 } } },
  });
  assert.equal(info.name, basinName);
  assert.ok(Math.abs(Date.now() - info.createdAt.getTime()) < 600_000);
  assert.equal(info.deletedAt ?? null, null);
});

await step("a second create of the basin is refused", async () => {
  await assert.rejects(s2.basins.create({ basin: basinName }), refused(409, "resource_already_exists"));
});

await step("a basin name that breaks the rules is refused", async () => {
  await assert.rejects(s2.basins.create({ basin: "No_Basin" }), (error) => error instanceof S2Error);
});

await step("the basin is listed", async () => {
  const page = await s2.basins.list({ prefix: basinName });
  assert.deepEqual(page.basins.map((info) => info.name), [basinName]);
  assert.equal(page.hasMore, false);
  const all = [];
  for await (const info of s2.basins.listAll({ prefix: "sdk-" })) all.push(info.name);
  assert.ok(all.includes(basinName));
});

await step("get the basin's configuration", async () => {
  const config = await s2.basins.getConfig({ basin: basinName });
  assert.equal(config.defaultStreamConfig?.retentionPolicy?.ageSecs, 86_400);
  assert.ok(!config.createStreamOnAppend);
});

await step("reconfigure the basin", async () => {
  const config = await s2.basins.reconfigure({
    basin: basinName,
    defaultStreamConfig: { timestamping: { mode: "client-prefer", uncapped: true } },
  });
  assert.equal(config.defaultStreamConfig?.timestamping?.uncapped, true);
  assert.equal(config.defaultStreamConfig?.retentionPolicy?.ageSecs, 86_400, "the patch leaves it alone");
});

await step("ensure a basin: created, then no change, then updated", async () => {
  const created = await s2.basins.ensure({ basin: autoName, config: { createStreamOnAppend: true } });
  assert.equal(created.result, "created");
  const same = await s2.basins.ensure({ basin: autoName, config: { createStreamOnAppend: true } });
  assert.equal(same.result, "noop");
  assert.equal(same.basin.createdAt.getTime(), created.basin.createdAt.getTime());
  const other = await s2.basins.ensure({
    basin: autoName,
    config: { createStreamOnAppend: true, createStreamOnRead: true },
  });
  assert.equal(other.result, "updated");
});

await step("a missing basin is not found", async () => {
  await assert.rejects(s2.basins.getConfig({ basin: `${basinName}-none` }), refused(404, "basin_not_found"));
});

// Streams.

await step("create a stream", async () => {
  const info = await basin.streams.create({ stream: streamName });
  assert.equal(info.name, streamName);
  assert.equal(info.deletedAt ?? null, null);
});

await step("a second create of the stream is refused", async () => {
  await assert.rejects(basin.streams.create({ stream: streamName }), refused(409, "resource_already_exists"));
});

await step("streams are listed in order, page by page", async () => {
  for (const name of ["page/b", "page/a", "page/c"]) await basin.streams.create({ stream: name });
  const first = await basin.streams.list({ prefix: "page/", limit: 2 });
  assert.deepEqual(first.streams.map((info) => info.name), ["page/a", "page/b"]);
  assert.equal(first.hasMore, true);
  const rest = await basin.streams.list({ prefix: "page/", startAfter: "page/b" });
  assert.deepEqual(rest.streams.map((info) => info.name), ["page/c"]);
  assert.equal(rest.hasMore, false);
});

await step("the stream's configuration is resolved through the basin's", async () => {
  const config = await basin.streams.getConfig({ stream: streamName });
  assert.equal(config.storageClass, "standard");
  assert.equal(config.retentionPolicy?.ageSecs, 86_400);
  assert.equal(config.timestamping?.uncapped, true);
});

await step("reconfigure the stream", async () => {
  const config = await basin.streams.reconfigure({ stream: streamName, retentionPolicy: { infinite: {} } });
  assert.deepEqual(config.retentionPolicy, { infinite: {} });
  const read = await basin.streams.getConfig({ stream: streamName });
  assert.deepEqual(read.retentionPolicy, { infinite: {} });
  assert.equal(read.timestamping?.uncapped, true, "the patch leaves it alone");
});

await step("ensure a stream: created, then no change, then updated", async () => {
  const config = { storageClass: "express" };
  assert.equal((await basin.streams.ensure({ stream: "ensured", config })).result, "created");
  assert.equal((await basin.streams.ensure({ stream: "ensured", config })).result, "noop");
  const updated = await basin.streams.ensure({ stream: "ensured", config: { storageClass: "standard" } });
  assert.equal(updated.result, "updated");
  assert.equal(updated.stream.name, "ensured");
  assert.equal((await basin.streams.getConfig({ stream: "ensured" })).storageClass, "standard");
});

await step("a missing stream is not found", async () => {
  await assert.rejects(basin.stream("none").checkTail(), refused(404, "stream_not_found"));
  await assert.rejects(
    basin.stream("none").append(AppendInput.create(records("x"))),
    refused(404, "stream_not_found"),
  );
});

// Records.

await step("an empty stream has its tail at 0, and reading there is a 416", async () => {
  assert.equal((await stream.checkTail()).tail.seqNum, 0);
  await assert.rejects(stream.read(from(0)), (error) => {
    assert.ok(error instanceof RangeNotSatisfiableError);
    assert.equal(error.status, 416);
    assert.equal(error.tail?.seqNum, 0);
    return true;
  });
});

await step("append with the expected sequence number", async () => {
  const ack = await append(["created", "paid"], { matchSeqNum: 0 });
  assert.equal(ack.start.seqNum, 0);
  assert.equal(ack.end.seqNum, 2);
  assert.ok(ack.tail.seqNum >= 2);
});

await step("append with another sequence number is a 412 that names the right one", async () => {
  await assert.rejects(append(["late"], { matchSeqNum: 0 }), (error) => {
    assert.ok(error instanceof SeqNumMismatchError);
    assert.equal(error.status, 412);
    assert.equal(error.expectedSeqNum, 2);
    return true;
  });
  assert.equal((await stream.checkTail()).tail.seqNum, 2, "nothing was written");
});

await step("append headers, a timestamp and bytes", async () => {
  const at = Date.now() - 1_000;
  const ack = await stream.append(
    AppendInput.create([
      AppendRecord.string({ body: "shipped", headers: [["by", "truck"], ["by", "ship"]], timestamp: at }),
      AppendRecord.bytes({ body: Uint8Array.of(0, 255, 128, 10), headers: [["kind", Uint8Array.of(200)]] }),
    ]),
  );
  assert.equal(ack.start.seqNum, 2);
  assert.equal(ack.end.seqNum, 4);
});

await step("read from the beginning", async () => {
  const batch = await stream.read({ ...from(0), stop: { limits: { count: 3 } } });
  assert.deepEqual(seqNums(batch), [0, 1, 2]);
  assert.deepEqual(bodies(batch), ["created", "paid", "shipped"]);
  assert.deepEqual(batch.records[2].headers.map((header) => [...header]), [["by", "truck"], ["by", "ship"]]);
  const times = batch.records.map((record) => record.timestamp.getTime());
  assert.deepEqual([...times].sort((a, b) => a - b), times, "timestamps never fall");
});

await step("read bytes as they were written", async () => {
  const batch = await stream.read({ ...from(3) }, { as: "bytes" });
  assert.deepEqual(seqNums(batch), [3]);
  assert.deepEqual([...batch.records[0].body], [0, 255, 128, 10]);
  assert.deepEqual([...batch.records[0].headers[0][0]], [...text.encode("kind")]);
  assert.deepEqual([...batch.records[0].headers[0][1]], [200]);
});

await step("read from an offset before the tail, and by timestamp", async () => {
  const last = await stream.read({ start: { from: { tailOffset: 2 } } });
  assert.deepEqual(seqNums(last), [2, 3]);
  const all = await stream.read({ start: { from: { tailOffset: 1_000 } } });
  assert.deepEqual(seqNums(all), [0, 1, 2, 3]);
  const { timestamp } = all.records[3];
  const late = await stream.read({ start: { from: { timestamp } } });
  assert.ok(seqNums(late).includes(3));
  assert.ok(late.records.every((record) => record.timestamp >= timestamp));
});

await step("read with limits", async () => {
  assert.deepEqual(seqNums(await stream.read({ ...from(1), stop: { limits: { count: 2 } } })), [1, 2]);
  const small = await stream.read({ ...from(0), stop: { limits: { bytes: 8 + "created".length } } });
  assert.deepEqual(seqNums(small), [0]);
});

await step("reading at and beyond the tail is a 416, clamped and waiting it is empty", async () => {
  for (const start of [4, 5, 1_000]) {
    await assert.rejects(stream.read(from(start)), (error) => {
      assert.ok(error instanceof RangeNotSatisfiableError);
      assert.equal(error.tail?.seqNum, 4);
      return true;
    });
  }
  const waited = await stream.read({ start: { from: { seqNum: 1_000 }, clamp: true }, stop: { waitSecs: 1 } });
  assert.deepEqual(seqNums(waited), []);
});

await step("a waiting read gets the next append", async () => {
  const waiting = stream.read({ ...from(4), stop: { waitSecs: 20 } });
  await append(["delivered"], { matchSeqNum: 4 });
  assert.deepEqual(bodies(await within(waiting, FOLLOW_MS, "waiting read")), ["delivered"]);
});

await step("a session catches up and follows", async () => {
  const session = await stream.readSession(from(0));
  const seen = [];
  const following = (async () => {
    for await (const record of session) {
      seen.push(record.seqNum);
      if (seen.length === 8) break;
    }
  })();
  await within(session.caughtUp(), FOLLOW_MS, "catching up");
  for (const [index, body] of ["f0", "f1", "f2"].entries()) await append([body], { matchSeqNum: 5 + index });
  await within(following, FOLLOW_MS, "following");
  assert.deepEqual(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
});

await step("a session with a count ends by itself, in bytes too", async () => {
  const session = await stream.readSession({ ...from(3), stop: { limits: { count: 2 } } }, { as: "bytes" });
  const seen = [];
  for await (const record of session) seen.push(record);
  assert.deepEqual(seen.map((record) => record.seqNum), [3, 4]);
  assert.deepEqual([...seen[0].body], [0, 255, 128, 10]);
  assert.deepEqual([...seen[1].body], [...text.encode("delivered")]);
});

await step("an append session keeps its order", async () => {
  const session = await stream.appendSession();
  const tickets = [];
  for (let index = 0; index < 5; index += 1) {
    tickets.push(await session.submit(AppendInput.create(records(`s${index}`, `t${index}`))));
  }
  const acks = await Promise.all(tickets.map((ticket) => ticket.ack()));
  assert.deepEqual(acks.map((ack) => ack.start.seqNum), [8, 10, 12, 14, 16]);
  await session.close();
  const batch = await stream.read(from(8));
  assert.deepEqual(bodies(batch), ["s0", "t0", "s1", "t1", "s2", "t2", "s3", "t3", "s4", "t4"]);
});

// Commands.

await step("a fencing token lets its owner in and others not", async () => {
  const fence = await stream.append(AppendInput.create([AppendRecord.fence("writer-1")]));
  assert.equal(fence.start.seqNum, 18);
  assert.equal((await append(["mine"], { fencingToken: "writer-1" })).start.seqNum, 19);
  assert.equal((await append(["unchecked"])).start.seqNum, 20);
  await stream.append(AppendInput.create([AppendRecord.fence("writer-2")], { fencingToken: "writer-1" }));
  await assert.rejects(append(["stale"], { fencingToken: "writer-1" }), (error) => {
    assert.ok(error instanceof FencingTokenMismatchError);
    assert.equal(error.status, 412);
    assert.equal(error.expectedFencingToken, "writer-2");
    return true;
  });
  assert.equal((await stream.checkTail()).tail.seqNum, 22);
});

await step("command records are read back, and left out on request", async () => {
  const batch = await stream.read({ start: { from: { seqNum: 18 } } });
  assert.deepEqual(batch.records[0].headers.map((header) => [...header]), [["", "fence"]]);
  assert.equal(batch.records[0].body, "writer-1");
  const data = await stream.read({ start: { from: { seqNum: 18 } }, ignoreCommandRecords: true });
  assert.deepEqual(bodies(data), ["mine", "unchecked"]);
});

await step("a trim drops what is before it", async () => {
  const ack = await stream.append(AppendInput.create([AppendRecord.trim(19)]));
  assert.equal(ack.end.seqNum, 23);
  const batch = await stream.read(from(0));
  assert.deepEqual(seqNums(batch), [19, 20, 21, 22]);
  assert.equal((await stream.checkTail()).tail.seqNum, 23);
});

await step("a large batch goes in and comes out whole", async () => {
  const large = Array.from({ length: 1_000 }, (_, index) => `${index}:${"x".repeat(900)}`);
  const ack = await append(large, { matchSeqNum: 23 });
  assert.equal(ack.end.seqNum, 1_023);
  const got = [];
  const session = await stream.readSession({ ...from(23), stop: { waitSecs: 0 } });
  for await (const record of session) got.push(record.body);
  assert.deepEqual(got, large);
});

await step("an append creates its stream where the basin says so", async () => {
  const auto = s2.basin(autoName).stream("on-demand", { forceTransport: transport });
  const ack = await auto.append(
    AppendInput.create(records("first"), { streamConfig: { retentionPolicy: { ageSecs: 3_600 } } }),
  );
  assert.equal(ack.start.seqNum, 0);
  const config = await s2.basin(autoName).streams.getConfig({ stream: "on-demand" });
  assert.equal(config.retentionPolicy?.ageSecs, 3_600);
});

// The end.

await step("a deleted stream is absent at once, and its name is free", async () => {
  await basin.streams.delete({ stream: streamName });
  await assert.rejects(stream.checkTail(), refused(404, "stream_not_found"));
  await assert.rejects(basin.streams.delete({ stream: streamName }), refused(404, "stream_not_found"));
  const page = await basin.streams.list({ prefix: "orders/" });
  assert.deepEqual(page.streams, []);
  await basin.streams.create({ stream: streamName });
  assert.equal((await stream.checkTail()).tail.seqNum, 0);
});

await step("a deleted basin goes away", async () => {
  for (const name of [basinName, autoName]) {
    await s2.basins.delete({ basin: name });
    await assert.rejects(s2.basins.getConfig({ basin: name }), refused(404, "basin_not_found"));
  }
});

await stream.close();
finish();
