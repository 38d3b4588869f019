/** Helper processes: their life, and what they and the daemon send each other. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { freeMemory } from "../../src/lib/buffer-pool.ts";
import { FairQueue } from "../../src/lib/fair-queue.ts";
import { readLocatedFile, readLocatedPaths, readMeasured } from "../../src/run-as/answers.ts";
import { ChunkInbox } from "../../src/run-as/helper/chunk-flow.mjs";
import { type Frame, FrameDecoder, encodeFrame, maxDataBytes } from "../../src/run-as/helper/frames.mjs";
import { readDeleted, readHostEntry, readHostPage, readSearchRecord } from "../../src/run-as/host-answers.ts";
import { type UserHelpers, createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { programs } from "../support/programs.ts";
import { assertFails, createWorld, eventually, isAlive, rootTest, someUid } from "./support/world.ts";

// What a helper process and the daemon send each other: frames, chunks, and their limits.

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
  const received = (streamId: number) =>
    Buffer.concat(frames.filter(({ header }) => header.id === streamId).map((frame) => frame.data));
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

test("a measurement that names a path outside of the measured directory is an invalid response", (t) => {
  const read = (barrier: string) => readMeasured({ sizes: [1], isComplete: false, barrier }, 1);
  t.is(read("data/pg..").barrier, "data/pg..");
  for (const barrier of ["../../../etc", "data/../../../../etc", "/etc", "x".repeat(70_000)])
    t.throws(() => read(barrier), { message: /invalid response/ });
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

const whoHelps = async (user: { runCommand: (argv: string[]) => Promise<{ stdout: string }> }) =>
  Number((await user.runCommand(["sh", "-c", "echo $PPID"])).stdout);

/** Children of this process; other tests run in other processes. */
async function children(): Promise<number> {
  const text = await readFile(`/proc/self/task/${process.pid}/children`, "latin1");
  return text.split(" ").filter(Boolean).length;
}

test.serial(
  "each user has one helper, which stays while there is work, stops when idle, and starts again",
  async (t) => {
    await using world = await createWorld({ idleMs: 300 });
    const { user, userHelpers } = world;
    const again = await userHelpers.as(someUid);
    const [first, second] = await Promise.all([whoHelps(user), whoHelps(again)]);
    t.is(second, first);
    t.true(await isAlive(first));
    await user.runCommand(["sleep", "0.6"]);
    t.is(await whoHelps(user), first, "a busy helper is not idle");
    await eventually(t, "it is stopped", async () => !(await isAlive(first)));
    t.not(await whoHelps(user), first);
  },
);

test.serial("a killed helper is replaced", async (t) => {
  await using world = await createWorld();
  const { user } = world;
  const first = await whoHelps(user);
  process.kill(first, "SIGKILL");
  await eventually(t, "it is gone", async () => !(await isAlive(first)));
  await eventually(t, "another one works", () =>
    whoHelps(user).then(
      (pid) => pid !== first,
      () => false,
    ),
  );
  t.false(await isAlive(first));
});

test.serial("work whose helper gets SIGTERM fails with that reason", async (t) => {
  await using world = await createWorld();
  const long = world.user.runCommand(["sleep", "300"]);
  process.kill(await whoHelps(world.user), "SIGTERM");
  await assertFails(t, long, "unavailable", /its helper process received SIGTERM; try again/);
});

rootTest("the number of helpers is limited: an idle one is replaced, a busy one is waited for", async (t) => {
  await using world = await createWorld({ maxHelpers: 1 });
  const { userHelpers, user } = world;
  const other = await userHelpers.as(1);
  const first = await whoHelps(user);
  const busy = other.runCommand(["sleep", "0.5"]);
  await eventually(t, "the idle one makes room", async () => !(await isAlive(first)));
  await assertFails(
    t,
    user.stat("/", "etc", { timeoutMs: 50 }),
    "deadline_exceeded",
    /no helper process was free in time/,
  );
  const stop = new AbortController();
  const canceled = user.stat("/", "etc", { signal: stop.signal });
  stop.abort();
  await assertFails(t, canceled, "canceled");
  t.is((await user.stat("/", "etc"))?.type, "directory");
  await busy;
});

rootTest("one user's many waiting requests keep no other user from a helper", async (t) => {
  await using world = await createWorld({ maxHelpers: 1 });
  const { userHelpers, user } = world;
  const [many, other] = [await userHelpers.as(1), await userHelpers.as(2)];
  const busy = user.runCommand(["sleep", "1"]);
  const answered: string[] = [];
  const waiting = Array.from({ length: 1_024 }, () =>
    many.runCommand(["sleep", "0.3"]).then(
      () => answered.push("many"),
      () => answered.push("rejected"),
    ),
  );
  await assertFails(t, many.stat("/", "etc"), "resource_exhausted", /too many requests are waiting/);
  const stat = other.stat("/", "etc", { timeoutMs: 120_000 });
  await busy;
  t.is((await stat)?.type, "directory");
  await Promise.all(waiting);
  t.false(answered.includes("rejected"));
});

rootTest("a user whose helper never idles does not keep the next user from a helper", async (t) => {
  await using world = await createWorld({ maxHelpers: 1, helperTurnMs: 500 });
  const { userHelpers, user } = world;
  const stop = new AbortController();
  const busy = [user, await userHelpers.as(1), await userHelpers.as(2)].map(async (each) =>
    each.runCommand(["sleep", "300"], { signal: stop.signal }),
  );
  const next = await userHelpers.as(3);
  t.is((await next.stat("/", "etc", { timeoutMs: 30_000 }))?.type, "directory");
  const fifth = await userHelpers.as(6);
  t.is((await fifth.stat("/", "etc", { timeoutMs: 30_000 }))?.type, "directory", "the idle one is replaced");
  const busyAgain = fifth.runCommand(["sleep", "300"], { signal: stop.signal });
  const sixth = await userHelpers.as(7);
  await assertFails(
    t,
    sixth.stat("/", "etc", { timeoutMs: 2_000 }),
    "deadline_exceeded",
    /no helper process was free in time/,
  );
  stop.abort();
  for (const each of [...busy, busyAgain]) await assertFails(t, each, "canceled");
  t.is((await sixth.stat("/", "etc", { timeoutMs: 30_000 }))?.type, "directory");
});

rootTest("root gets a helper while users' commands hold all helpers", async (t) => {
  await using world = await createWorld({ maxHelpers: 1 });
  const { userHelpers, user } = world;
  const stop = new AbortController();
  const busy = user.runCommand(["sleep", "300"], { signal: stop.signal });
  const root = await userHelpers.as(0);
  t.is((await root.stat("/", "etc", { timeoutMs: 10_000 }))?.type, "directory");
  const other = await userHelpers.as(1);
  await assertFails(
    t,
    other.stat("/", "etc", { timeoutMs: 50 }),
    "deadline_exceeded",
    /no helper process was free in time/,
  );
  stop.abort();
  await assertFails(t, busy, "canceled");
});

test("many concurrent requests all succeed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.writeFile(app, "f", "x");
  const answers = await Promise.all(Array.from({ length: 500 }, () => user.readFile(app, "f")));
  t.is(answers.length, 500);
  const many = Array.from({ length: 1200 }, () => user.stat(app, "f"));
  const refused = (await Promise.allSettled(many)).filter(({ status }) => status === "rejected");
  t.true(refused.length > 0 && refused.length <= 1200 - 1024, `${refused.length} refused`);
});

test("an aborted signal, or a message above the limit, starts nothing", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await assertFails(t, user.writeFile(app, "f", "x", { signal: AbortSignal.abort() }), "canceled");
  await assertFails(t, user.writeFile(app, "f", Buffer.alloc(9 << 20)), "resource_exhausted");
  await assertFails(t, user.runCommand(["true", "x".repeat(5 << 20)]), "resource_exhausted");
  t.is(await user.stat(app, "f"), undefined);
});

test.serial("disposing cancels the work and reaps every helper", async (t) => {
  const before = await children();
  const world = await createWorld({});
  const long = world.user.runCommand(["sleep", "300"]);
  long.catch(() => undefined);
  await whoHelps(world.user);
  await world.userHelpers[Symbol.asyncDispose]();
  await assertFails(t, long, "unavailable", /^the work was interrupted: svc is stopping;/);
  t.is(await children(), before);
  await assertFails(t, world.user.stat("/", "."), "unavailable", /stopping/);
  await rm(world.dir, { recursive: true });
});

test("helpers and commands exit when the daemon is killed; detached processes stay", async (t) => {
  await using world = await createWorld();
  const { app } = world;
  const script = `
    import { createUserHelpers } from ${JSON.stringify(new URL("../../src/run-as/user-helpers.ts", import.meta.url).href)};
    const user = await createUserHelpers().as(${someUid});
    await user.spawnDetached(["sh", "-c", "echo $$ > detached; exec sleep 300"], { cwd: ${JSON.stringify(app)} });
    await user.runCommand(["sh", "-c", "echo $PPID $$ > pids; exec sleep 300"], { cwd: ${JSON.stringify(app)} });`;
  const daemon = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: "inherit" });
  const pidsIn = async (name: string) => {
    const text = await readFile(join(app, name), "utf8").catch(() => "");
    return text.endsWith("\n") ? text.trim().split(" ").map(Number) : [];
  };
  await eventually(t, "everything runs", async () => (await pidsIn("pids")).length === 2);
  daemon.kill("SIGKILL");
  for (const pid of await pidsIn("pids")) {
    await eventually(t, `${pid} has ended`, async () => !(await isAlive(pid)));
  }
  const [detached = 0] = await pidsIn("detached");
  t.true(await isAlive(detached));
  process.kill(detached, "SIGKILL");
});

test("a helper that has lost its daemon exits at once, without waiting for threads of Node", async (t) => {
  const [uid, gid] = [process.getuid?.(), process.getgid?.()];
  const helperPath = programs.userHelper;
  const expected = JSON.stringify({ uid, gid, groups: [], dropped: false });
  const helper = spawn(process.execPath, [helperPath, expected], { stdio: ["pipe", "pipe", "inherit"] });
  await once(helper.stdout, "data");
  const exited = once(helper, "exit");
  helper.stdin.end();
  t.deepEqual(await exited, [null, "SIGKILL"]);
});

const hello = 'send({ hello: 1 }); process.stdin.on("data", (bytes) => { const id = 1; ';
for (const [what, body] of [
  ["sends garbage", `${hello} process.stdout.write("garbage, and much of it"); });`],
  ["sends an endless frame", `${hello} process.stdout.write(Buffer.alloc(8, 0xff)); });`],
  ["sends no JSON", `${hello} process.stdout.write(Buffer.from("000000010000000078", "hex")); });`],
  [
    "overruns the window",
    `${hello} for (let i = 0; i < 64; i++) send({ id, chunk: true }, Buffer.alloc(1 << 16)); });`,
  ],
  ["acknowledges what was not sent", `${hello} send({ id, ack: 1e9 }); });`],
  ["dies", `${hello} process.exit(1); });`],
  ["never says hello and dies", `process.exit(1);`],
] as const) {
  test(`a helper that ${what} fails only its request`, async (t) => {
    await using world = await createWorld();
    const helperPath = join(world.dir, "helper.mjs");
    const send =
      "const send = (header, data = Buffer.alloc(0)) => { const json = Buffer.from(JSON.stringify(header)); const prefix = Buffer.alloc(8);" +
      "prefix.writeUInt32BE(json.length, 0); prefix.writeUInt32BE(data.length, 4); process.stdout.write(Buffer.concat([prefix, json, data])); };\n";
    await writeFile(helperPath, send + body);
    await chmod(helperPath, 0o644);
    const { createUserHelpers } = await import("../../src/run-as/user-helpers.ts");
    await using userHelpers = createUserHelpers({ helperPath });
    const user = await userHelpers.as(someUid);
    const error = await t.throwsAsync(user.runCommand(["true"], { timeoutMs: 20_000 }));
    t.regex(String(error), /violated the protocol|its helper process ended|cannot act as/);
  });
}

for (const [what, value] of [
  ["a string", '"1e9"'],
  ["a negative number", "[-1]"],
  ["too few", "[]"],
  ["an infinite one", "[1e999]"],
  ["nothing", "null"],
] as const) {
  test(`a helper that returns ${what} for a size is not believed`, async (t) => {
    await using world = await createWorld();
    const helperPath = join(world.dir, "helper.mjs");
    await writeFile(
      helperPath,
      "const send = (json) => { const prefix = Buffer.alloc(8); prefix.writeUInt32BE(json.length, 0); process.stdout.write(Buffer.concat([prefix, Buffer.from(json)])); };\n" +
        `send('{"hello":1}'); process.stdin.on("data", () => send('{"id":1,"ok":true,"value":${value}}'));`,
    );
    const { createUserHelpers } = await import("../../src/run-as/user-helpers.ts");
    await using userHelpers = createUserHelpers({ helperPath });
    const user = await userHelpers.as(someUid);
    await assertFails(t, user.measure("/tmp", ["x"]), "internal", /invalid response/);
  });
}

test("the helper imports only Node's modules, its own files and those of sys", async (t) => {
  const own = fileURLToPath(new URL("../../src/run-as/helper", import.meta.url));
  const sys = fileURLToPath(new URL("../../src/sys", import.meta.url));
  const plain = (await readdir(sys)).filter((name) => name.endsWith(".mjs"));
  const files = [
    join(own, "../helper.mjs"),
    ...(await readdir(own, { recursive: true })).map((name) => join(own, name)),
    ...plain.map((name) => join(sys, name)),
  ].filter((file) => file.endsWith(".mjs"));
  for (const file of files) {
    const places = file.startsWith(sys) ? [sys] : [own, sys];
    const imports = [
      ...(await readFile(file, "utf8")).matchAll(/^import .*?"([^"]+)";$|^} from "([^"]+)";$/gms),
    ];
    for (const [, one, other] of imports) {
      const path = one ?? other ?? "";
      if (path.startsWith("node:")) continue;
      t.true(path.startsWith(".") && path.endsWith(".mjs"), `${file}: ${path}`);
      const target = join(dirname(file), path);
      t.true(
        places.some((place) => target.startsWith(place)),
        `${file}: ${path}`,
      );
    }
  }
});

test("a helper that exits is not waited for if other processes hold its pipes open", async (t) => {
  await using place = await createWorld();
  const helperPath = join(place.dir, "helper.mjs");
  const pidFile = join(place.app, "holder");
  // Holds all of them open, and reports its PID.
  const holder = `process.stdin.resume(); require("fs").writeFileSync(${JSON.stringify(pidFile)}, String(process.pid)); setTimeout(() => {}, 600_000);`;
  await writeFile(
    helperPath,
    `import { spawn } from "node:child_process";
const json = Buffer.from('{"hello":1}'); const prefix = Buffer.alloc(8); prefix.writeUInt32BE(json.length, 0);
process.stdout.write(Buffer.concat([prefix, json]));
process.stdin.once("data", () => {
  spawn(process.execPath, ["-e", ${JSON.stringify(holder)}], { stdio: ["pipe", "inherit", "inherit"], detached: true });
  setInterval(() => { if (require("fs").existsSync(${JSON.stringify(pidFile)})) process.kill(process.pid, "SIGKILL"); }, 20);
});
import { createRequire } from "node:module"; const require = createRequire(import.meta.url);`,
  );
  await chmod(helperPath, 0o644);
  const userHelpers = createUserHelpers({ helperPath });
  try {
    const user = await userHelpers.as(someUid);
    await assertFails(t, user.stat(place.app, "f"), "unavailable", /interrupted/);
  } finally {
    process.kill(Number(await readFile(pidFile, "latin1")), "SIGKILL");
    await userHelpers[Symbol.asyncDispose]();
  }
});
