/** Answers of a helper that are longer than any are refused before they are parsed, and cost nobody a turn (docs/threat-model.md). */
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import test, { type ExecutionContext } from "ava";
import { createIdentities, type Identities } from "../../src/identity/identities.ts";
import { readLocatedFile, readLocatedPaths } from "../../src/identity/answers.ts";
import {
  readDeleted,
  readHostEntry,
  readHostPage,
  readSearchRecord,
} from "../../src/identity/host-answers.ts";
import { assertFails, createWorld, someUid } from "./support/world.ts";

const send =
  "const send = (header, data = Buffer.alloc(0)) => { const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header)); const prefix = Buffer.alloc(8);" +
  "prefix.writeUInt32BE(json.length, 0); prefix.writeUInt32BE(data.length, 4); process.stdout.write(Buffer.concat([prefix, json, data])); };\n" +
  "send({ hello: 1 }); const ok = { id: 1, ok: true, value: null };\n";

/** Identities whose helper does this for the first request. */
async function withHelper(t: ExecutionContext, body: string): Promise<Identities> {
  const world = await createWorld();
  const helperPath = join(world.dir, "helper.mjs");
  await writeFile(helperPath, `${send}process.stdin.once("data", () => { ${body} });`);
  await chmod(helperPath, 0o644);
  const identities = createIdentities({ helperPath });
  t.teardown(async () => {
    await identities[Symbol.asyncDispose]();
    await world[Symbol.asyncDispose]();
  });
  return identities;
}

test("a header that holds more than any breaks the protocol", async (t) => {
  const full = `'{"id":1,"ok":true,"value":[' + "[],".repeat(40_000) + '0]}'`;
  const identities = await withHelper(t, `send(${full});`);
  const user = await identities.as(someUid);
  await assertFails(
    t,
    user.measure("/tmp", ["x"]),
    "unavailable",
    /broke the protocol: message holds too much/,
  );
});

test("a list that holds more than any makes no sense", async (t) => {
  const list = `Buffer.from(JSON.stringify(Array(30_000).fill({ name: "x", type: "file" })))`;
  const identities = await withHelper(t, `send(ok, ${list});`);
  const user = await identities.as(someUid);
  await assertFails(t, user.list("/tmp", "x"), "internal", /makes no sense/);
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
  test(`a record of a search that is longer than any comes to nobody, ${what}`, async (t) => {
    t.timeout(30_000);
    const identities = await withHelper(t, record);
    const files = await identities.hostFiles(someUid);
    const search = { name: "x", text: "", hidden: true, limit: 10 } as never;
    await assertFails(t, Array.fromAsync(files.search("/tmp", search)), "internal", /makes no sense/);
  });
}

const entry = ["name", "file", 1, 0o644, 0, 0, 0, "tag", ""];
const answer = <Value>(value: Value, data: unknown) => ({ value, data: Buffer.from(JSON.stringify(data)) });
const failure = (at: number) => ({ path: `/${"x".repeat(100)}/${at}`, code: "denied", message: "no" });

test("names that are longer than any make no sense", (t) => {
  t.is(readHostEntry(["x".repeat(4096), ...entry.slice(1)]).name.length, 4096);
  t.throws(() => readHostEntry(["x".repeat(4097), ...entry.slice(1)]), { message: /makes no sense/ });
  t.throws(() => readHostEntry([...entry.slice(0, 7), "x".repeat(4097), ""]), { message: /makes no sense/ });
  const match = { where: "/", entry, text: "x".repeat(4097) };
  t.throws(() => readSearchRecord(JSON.stringify(match)), { message: /makes no sense/ });
});

test("places of frames that are more than any, cut off or no numbers of bytes make no sense", (t) => {
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
    t.throws(() => read(data), { message: /makes no sense/ });
});

test("pages and failures that are more than any make no sense", (t) => {
  const page = (count: number) => answer({ directory: entry, more: false }, Array(count).fill(entry));
  t.is(readHostPage(page(2_000)).entries.length, 2_000);
  t.throws(() => readHostPage(page(5_000)), { message: /makes no sense/ });
  const deleted = (count: number) =>
    answer(
      { failureCount: 0 },
      {
        deleted: Array.from({ length: 1_000 }, (_, at) => `/${at}`),
        failures: Array.from({ length: count }, (_, at) => failure(at)),
      },
    );
  t.is(readDeleted(deleted(1_000)).failures.length, 1_000);
  t.throws(() => readDeleted(deleted(5_000)), { message: /makes no sense/ });
});

for (const answer of ["send(done);", "setTimeout(() => send(done), 200);"])
  test(`output that nobody could take is no success, whenever the helper is done: ${answer}`, async (t) => {
    const done = `{ id: 1, ok: true, value: { exitCode: 0, signal: null, stdoutBytes: 0, truncated: false } }`;
    const identities = await withHelper(
      t,
      `const done = ${done}; send({ id: 1, chunk: true }, Buffer.from("the last words")); ${answer}`,
    );
    const full = new Writable({ write: (_chunk, _encoding, taken) => taken(new Error("no room")) });
    const user = await identities.as(someUid);
    await t.throwsAsync(user.runCommand(["true"], { stdout: full }), { message: "no room" });
  });
