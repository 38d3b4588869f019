/** What a helper process and the daemon send each other: frames, chunks, and their limits. */
import { randomBytes } from "node:crypto";
import { writeFile, chmod } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { freeMemory } from "../../src/lib/buffer-pool.ts";
import { FairQueue } from "../../src/lib/fair-queue.ts";
import { readLocatedFile, readLocatedPaths } from "../../src/run-as/answers.ts";
import { ChunkInbox } from "../../src/run-as/helper/chunk-flow.mjs";
import { type Frame, FrameDecoder, encodeFrame, maxDataBytes } from "../../src/run-as/helper/frames.mjs";
import { readDeleted, readHostEntry, readHostPage, readSearchRecord } from "../../src/run-as/host-answers.ts";
import { createUserHelpers, type UserHelpers } from "../../src/run-as/user-helpers.ts";
import { assertFails, createWorld, someUid } from "./support/world.ts";

test("frames are decoded from pieces of any size", (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.record({ note: fc.string(), data: fc.uint8Array({ maxLength: 300 }) }), { maxLength: 8 }),
      fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1, maxLength: 20 }),
      (messages, cuts) => {
        const bytes = Buffer.concat(
          messages.flatMap(({ note, data }, id) => encodeFrame({ id, note }, data)),
        );
        const decoder = new FrameDecoder();
        const frames = [];
        for (let start = 0, cut = 0; start < bytes.length; cut++) {
          const length = cuts[cut % cuts.length] ?? 1;
          frames.push(...decoder.push(bytes.subarray(start, start + length)));
          start += length;
        }
        t.deepEqual(
          frames.map(({ header, data }) => ({ note: header["note"], data: Uint8Array.from(data) })),
          messages.map(({ note, data }) => ({ note, data })),
        );
      },
    ),
  );
});

test("a chunk is passed on in the received pieces, without copies", (t) => {
  const data = Buffer.from("abcdefghij".repeat(1000));
  const bytes = Buffer.concat([
    ...encodeFrame({ id: 1, chunk: true }, data),
    ...encodeFrame({ id: 2, end: true }),
    ...encodeFrame({ id: 3 }, data),
  ]);
  const decoder = new FrameDecoder();
  const pieces = [bytes.subarray(0, 3000), bytes.subarray(3000, 15_000), bytes.subarray(15_000)];
  const frames = pieces.flatMap((piece) => [...decoder.push(piece)]);
  t.deepEqual(
    frames.map(({ header }) => header.id),
    [1, 1, 2, 3],
  );
  const chunks = frames.slice(0, 2).map((frame) => frame.data);
  t.deepEqual(Buffer.concat(chunks), data);
  for (const chunk of chunks) t.is(chunk.buffer, bytes.buffer);
  t.deepEqual(frames[3]?.data, data);
});

test("bytes of lent pieces are copied if they are stored", (t) => {
  const data = randomBytes(120_000);
  const bytes = Buffer.concat([
    ...encodeFrame({ id: 1, chunk: true }, data),
    ...encodeFrame({ id: 2, end: true }),
    ...encodeFrame({ id: 3 }, data),
  ]);
  const lent = Buffer.alloc(70_000);
  const decoder = new FrameDecoder({ isLent: true });
  const frames: Frame[] = [];
  for (let at = 0; at < bytes.length; at += lent.length) {
    const length = bytes.copy(lent, 0, at);
    for (const { header, data: own } of decoder.push(lent.subarray(0, length)))
      frames.push({ header, data: Buffer.from(own) });
    lent.fill(0);
  }
  const received = (wanted: number) =>
    Buffer.concat(frames.filter(({ header }) => header.id === wanted).map((frame) => frame.data));
  t.deepEqual(received(1), data);
  t.deepEqual(received(3), data);
});

test("a message above a limit is neither sent nor received", (t) => {
  t.throws(() => encodeFrame({}, Buffer.alloc(maxDataBytes + 1)), { instanceOf: RangeError });
  const prefix = Buffer.alloc(8);
  prefix.writeUInt32BE(2, 0);
  prefix.writeUInt32BE(maxDataBytes + 1, 4);
  t.throws(() => [...new FrameDecoder().push(prefix)], { message: /too large/ });
});

for (const json of ["null", "1", "{", ""]) {
  test(`a header of ${JSON.stringify(json)} violates the protocol`, (t) => {
    const prefix = Buffer.alloc(8);
    prefix.writeUInt32BE(json.length, 0);
    t.throws(() => [...new FrameDecoder().push(Buffer.concat([prefix, Buffer.from(json)]))]);
  });
}

// Streams between daemon and helper, in one process.

test("all received chunks are yielded together, and acknowledged after use", async (t) => {
  const acknowledged: number[] = [];
  const inbox = new ChunkInbox((bytes) => void acknowledged.push(bytes), new AbortController().signal);
  for (const byte of [1, 2, 3]) inbox.push(Buffer.alloc(100_000, byte));
  const batches: number[][] = [];
  for await (const pieces of inbox.batches()) {
    t.is(acknowledged.length, batches.length);
    batches.push(pieces.map(([first]) => first ?? 0));
    if (batches.length === 1) for (const byte of [4, 5, 6]) inbox.push(Buffer.alloc(100_000, byte));
    else inbox.end();
  }
  t.deepEqual(batches, [
    [1, 2, 3],
    [4, 5, 6],
  ]);
  t.deepEqual(acknowledged, [300_000, 300_000]);
});

test("chunks whose memory is released during use count as consumed", async (t) => {
  const acknowledged: number[] = [];
  const inbox = new ChunkInbox((bytes) => void acknowledged.push(bytes), new AbortController().signal);
  inbox.push(Buffer.allocUnsafeSlow(300_000));
  inbox.end();
  for await (const chunk of inbox) freeMemory(chunk);
  t.deepEqual(acknowledged, [300_000]);
});

test("small chunks are joined, and empty ones dropped, so that their number is bounded", async (t) => {
  const inbox = new ChunkInbox(() => undefined, new AbortController().signal);
  const sent = Buffer.from(Array.from({ length: 100_000 }, (_, index) => index % 251));
  for (let at = 0; at < sent.length; at++) {
    inbox.push(sent.subarray(at, at + 1));
    inbox.push(sent.subarray(0, 0));
  }
  inbox.end();
  for await (const chunks of inbox.batches()) {
    t.true(chunks.length < 50, `${chunks.length} chunks`);
    t.deepEqual(Buffer.concat(chunks), sent);
  }
});

// Responses of a helper above a limit are rejected before they are parsed, and delay nobody (docs/threat-model.md).

const send =
  "const frame = (header, data = Buffer.alloc(0)) => { const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header)); const prefix = Buffer.alloc(8);" +
  "prefix.writeUInt32BE(json.length, 0); prefix.writeUInt32BE(data.length, 4); return Buffer.concat([prefix, json, data]); };\n" +
  "const send = (header, data) => process.stdout.write(frame(header, data));\n" +
  "send({ hello: 1 }); const ok = { id: 1, ok: true, value: null };\n";

/** User helpers whose process runs this code for the first request. */
async function withHelper(t: ExecutionContext, body: string, fairQueue?: FairQueue): Promise<UserHelpers> {
  const world = await createWorld();
  const helperPath = join(world.dir, "helper.mjs");
  await writeFile(helperPath, `${send}process.stdin.once("data", () => { ${body} });`);
  await chmod(helperPath, 0o644);
  const userHelpers = createUserHelpers({ helperPath, ...(fairQueue && { fairQueue }) });
  t.teardown(async () => {
    await userHelpers[Symbol.asyncDispose]();
    await world[Symbol.asyncDispose]();
  });
  return userHelpers;
}

test("a header with too much structure violates the protocol", async (t) => {
  const full = `'{"id":1,"ok":true,"value":[' + "[],".repeat(40_000) + '0]}'`;
  const userHelpers = await withHelper(t, `send(${full});`);
  const user = await userHelpers.as(someUid);
  await assertFails(
    t,
    user.measure("/tmp", ["x"]),
    "unavailable",
    /violated the protocol: message holds too much/,
  );
});

test("each message takes its turn among the work of all users, however many come at once", async (t) => {
  const names: string[] = [];
  class SeenTurns extends FairQueue {
    override wait(name: string): Promise<void> | undefined {
      names.push(name);
      return super.wait(name);
    }
  }
  // Each look at the clock finds that the turn is over.
  let nowMs = 0;
  const turns = new SeenTurns(() => (nowMs += 10));
  const events = "for (let at = 0; at < 2_000; at++) all.push(frame({ id: 1, event: { progress: 1 } }));";
  const body = `const all = []; ${events} process.stdout.write(Buffer.concat(all)); send(ok, Buffer.from("[]"));`;
  const userHelpers = await withHelper(t, body, turns);
  const user = await userHelpers.as(someUid);
  let passed = 0;
  const counting = setInterval(() => passed++, 0);
  t.deepEqual(await user.list("/tmp", "x"), []);
  clearInterval(counting);
  t.true(names.length >= 2_000, `${names.length} turns`);
  t.deepEqual(new Set(names), new Set([`uid ${someUid}`]));
  t.true(passed > 1, "timers ran in between");
});

test("a list with too much structure is an invalid response", async (t) => {
  const list = `Buffer.from(JSON.stringify(Array(30_000).fill({ name: "x", type: "file" })))`;
  const userHelpers = await withHelper(t, `send(ok, ${list});`);
  const user = await userHelpers.as(someUid);
  await assertFails(t, user.list("/tmp", "x"), "internal", /invalid response/);
});

for (const [what, record] of [
  [
    "in one piece",
    `send({ id: 1, chunk: true }, Buffer.from('{"entries":1}' + " ".repeat(200 << 10) + "\\n")); send(ok);`,
  ],
  [
    "in pieces",
    `for (let at = 0; at < 10; at++) send({ id: 1, chunk: true }, Buffer.from(" ".repeat(20 << 10))); send(ok);`,
  ],
] as const) {
  test(`a record of a search that is too long is not passed on, ${what}`, async (t) => {
    t.timeout(30_000);
    const userHelpers = await withHelper(t, record);
    const files = await userHelpers.hostFiles(someUid);
    const search = { name: "x", text: "", hidden: true, limit: 10 } as never;
    await assertFails(t, Array.fromAsync(files.search("/tmp", search)), "internal", /invalid response/);
  });
}

const entry = ["name", "file", 1, 0o644, 0, 0, 0, "tag", ""];
const answer = <Value>(value: Value, data: unknown) => ({ value, data: Buffer.from(JSON.stringify(data)) });
const failure = (at: number) => ({ path: `/${"x".repeat(100)}/${at}`, code: "denied", message: "no" });

test("names that are too long are an invalid response", (t) => {
  t.is(readHostEntry(["x".repeat(4096), ...entry.slice(1)]).name.length, 4096);
  t.throws(() => readHostEntry(["x".repeat(4097), ...entry.slice(1)]), { message: /invalid response/ });
  t.throws(() => readHostEntry([...entry.slice(0, 7), "x".repeat(4097), ""]), {
    message: /invalid response/,
  });
  const match = { where: "/", entry, text: "x".repeat(4097) };
  t.throws(() => readSearchRecord(JSON.stringify(match)), { message: /invalid response/ });
});

test("frame offsets that are too many, truncated or not integers are an invalid response", (t) => {
  const places = (count: number, value = 1) => Buffer.from(new Float64Array(count * 3).fill(value).buffer);
  const found = { path: "x", size: 1, entries: 1, contentBytes: 1 };
  const read = (data: Buffer) => readLocatedFile({ value: found, data }).frames;
  const frame = { number: 1, at: 1, bytes: 1 };
  t.deepEqual(read(places(2)), [frame, frame]);
  t.deepEqual(readLocatedPaths({ value: found, data: places(1) }).frames, [frame]);
  t.is(read(places(100_000)).length, 100_000);
  for (const data of [
    ...[places(100_001), places(1).subarray(1)],
    ...[-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53].map((value) => places(1, value)),
  ])
    t.throws(() => read(data), { message: /invalid response/ });
});

test("pages and failures that are too long are an invalid response", (t) => {
  const page = (count: number) => answer({ directory: entry, more: false }, Array(count).fill(entry));
  t.is(readHostPage(page(2_000)).entries.length, 2_000);
  t.throws(() => readHostPage(page(5_000)), { message: /invalid response/ });
  const deleted = (count: number) =>
    answer(
      { failureCount: 0 },
      {
        deleted: Array.from({ length: 1_000 }, (_, at) => `/${at}`),
        failures: Array.from({ length: count }, (_, at) => failure(at)),
      },
    );
  t.is(readDeleted(deleted(1_000)).failures.length, 1_000);
  t.throws(() => readDeleted(deleted(5_000)), { message: /invalid response/ });
});

for (const answer of ["send(done);", "setTimeout(() => send(done), 200);"])
  test(`output that the consumer rejects fails the request, whenever the helper is done: ${answer}`, async (t) => {
    const done = `{ id: 1, ok: true, value: { exitCode: 0, signal: null, stdoutBytes: 0, truncated: false } }`;
    const userHelpers = await withHelper(
      t,
      `const done = ${done}; send({ id: 1, chunk: true }, Buffer.from("the last words")); ${answer}`,
    );
    const full = new Writable({ write: (_chunk, _encoding, taken) => taken(new Error("no room")) });
    const user = await userHelpers.as(someUid);
    await t.throwsAsync(user.runCommand(["true"], { stdout: full }), { message: "no room" });
  });
