import { cp, open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { inspectAhead, type InspectionAhead } from "../../src/store/store.ts";
import { programs } from "../support/programs.ts";
import { falsifyIndex, recordsOf } from "./support/falsify-index.ts";
import { keys, openStore, put, temporaryDir } from "./support/temporary-store.ts";

const text = "x".repeat(1_000);

let master: ReturnType<typeof makeStore> | undefined;
/** A closed store with 10,000 rows of a kilobyte and a snapshot of them: a copy of one that is made for all tests. */
async function closedStore(): ReturnType<typeof makeStore> {
  const { path } = await (master ??= makeStore(10_000));
  const dir = await temporaryDir();
  await cp(path, dir.path, { recursive: true });
  return dir;
}

test.after.always(async () => (await master)?.[Symbol.asyncDispose]());

async function makeStore(rows: number): Promise<AsyncDisposable & { path: string }> {
  const dir = await temporaryDir();
  await using store = await openStore({ dir: dir.path });
  const columns = [
    Array.from({ length: rows }, (_, row) => `key-${row}`),
    Array.from({ length: rows }, () => text),
  ];
  await store.write([{ sql: "INSERT INTO meta VALUES (?, ?)", columns }]);
  const app = `INSERT INTO apps VALUES ('alpha', 1000, 'a', 'process', 'p', '{}', '{}', 'running', 'RUNNING', NULL, 1, 1)`;
  await store.write([...recordsOf("first", "second"), { sql: app }]);
  await store.housekeep();
  await store.write([put("later")]);
  return dir;
}

/** The given result of an earlier inspection. */
function soundly(isSound: boolean | undefined): InspectionAhead {
  return { isSound: Promise.resolve(isSound), index: Promise.resolve(undefined) };
}

test("a large database is inspected before it is opened, and the result is used", async (t) => {
  await using dir = await closedStore();
  const ahead = await inspectAhead(dir.path, programs.storeWorker);
  t.true(await ahead?.isSound);
  {
    await using store = await openStore({ dir: dir.path, ahead });
    t.is(store.restoration, undefined);
  }
  const database = await open(join(dir.path, "svc.db"), "r+");
  await database.write(Buffer.alloc(4_096, 0xff), 0, 4_096, 4_096 * 1_000);
  await database.close();
  const damaged = await inspectAhead(dir.path, programs.storeWorker);
  t.false(await damaged?.isSound);
  await using store = await openStore({ dir: dir.path, ahead: damaged });
  t.truthy(store.restoration);
  t.is(store.get<{ count: number }>("SELECT count(*) AS count FROM meta")?.count, 10_000);
});

for (const isAhead of [true, false]) {
  test(`an index of the audit trail that disagrees with its records is rebuilt, ${isAhead ? "ahead" : "when the store is opened"}`, async (t) => {
    await using dir = await closedStore();
    await falsifyIndex(dir.path, "audit_by_target", "second", "sXcond");
    const ahead = isAhead ? await inspectAhead(dir.path, programs.storeWorker) : undefined;
    t.is(await ahead?.isSound, isAhead ? true : undefined);
    const warnings: { problem?: unknown }[] = [];
    const log = { warn: (details: object) => warnings.push(details) };
    await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: isAhead, log });
    await store.write([{ sql: "DELETE FROM audit WHERE target = 'second'", changes: 1 }]);
    t.is(store.restoration, undefined);
    t.true(keys(store).includes("later"), "nothing is lost");
    t.is(warnings.length, 1);
    t.regex(String(warnings[0]?.problem), /index audit_by_target/);
    t.is(store.get<{ ok: string }>("SELECT integrity_check AS ok FROM pragma_integrity_check")?.ok, "ok");
  });
}

test("a wrong index of any other table counts as damage, and the database is restored", async (t) => {
  await using dir = await closedStore();
  await falsifyIndex(dir.path, "sqlite_autoindex_apps_1", "alpha", "aXpha");
  const ahead = await inspectAhead(dir.path, programs.storeWorker);
  t.false(await ahead?.isSound);
  t.is(await ahead?.index, undefined);
  await using store = await openStore({ dir: dir.path, ahead });
  t.regex(store.restoration?.problem ?? "", /index sqlite_autoindex_apps_1/);
});

test("an index that cannot be rebuilt is logged and does not prevent writes", async (t) => {
  await using dir = await closedStore();
  const why = new Error("the disk is full");
  const ahead = { isSound: Promise.resolve(true), index: Promise.reject(why) };
  const warnings: object[] = [];
  const log = { warn: (details: object) => warnings.push(details) };
  await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true, log });
  await store.write([put("new")]);
  t.true(keys(store).includes("new"));
  t.deepEqual(warnings, [{ err: why }]);
});

test("a database that was inspected ahead is not inspected again", async (t) => {
  await using dir = await closedStore();
  const database = await open(join(dir.path, "svc.db"), "r+");
  await database.write(Buffer.alloc(4_096, 0xff), 0, 4_096, 4_096 * 1_000);
  await database.close();
  await using store = await openStore({ dir: dir.path, ahead: soundly(true) });
  t.is(store.restoration, undefined, "nobody has looked again");
});

test("writes to a store that is still being inspected wait until it is known to be sound", async (t) => {
  await using dir = await closedStore();
  const verdict = Promise.withResolvers<boolean>();
  const index = Promise.withResolvers<undefined>();
  const ahead = { isSound: verdict.promise, index: index.promise };
  await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true });
  await using other = await openStore({ dir: dir.path });
  const written: number[] = [];
  const write = (key: number): Promise<unknown> => store.write([put(`${key}`)]).then(() => written.push(key));
  /** Long enough for other writes. */
  const settle = async (key: string): Promise<void> => {
    await other.write([put(key)]);
    await sleep(200);
  };
  const writes = [1, 2].map(write);
  await settle("other");
  t.deepEqual(written, []);
  verdict.resolve(true);
  writes.push(write(3));
  await settle("another");
  t.deepEqual(written, [], "its last index is still being read");
  index.resolve(undefined);
  await Promise.all(writes);
  t.deepEqual(written, [1, 2, 3]);
  await write(4);
});

test("writes to a store that turns out to be damaged are rejected", async (t) => {
  await using dir = await closedStore();
  for (const isSound of [false, undefined]) {
    const ahead = soundly(isSound);
    await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true });
    await t.throwsAsync(store.write([put("new")]), { message: /is damaged and rejects writes/ });
    t.false(keys(store).includes("new"));
  }
});

test("a restored store accepts writes, whatever the inspection ahead found", async (t) => {
  await using dir = await closedStore();
  const database = await open(join(dir.path, "svc.db"), "r+");
  await database.write(Buffer.alloc(4_096, 0xff), 0, 4_096, 0);
  await database.close();
  const ahead = soundly(false);
  await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true });
  t.truthy(store.restoration);
  await store.write([put("new")]);
  t.true(keys(store).includes("new"));
});

test("no inspection starts for a small database or an insecure store", async (t) => {
  await using small = await makeStore(10);
  t.is(await inspectAhead(small.path, programs.storeWorker), undefined);
  t.is(await inspectAhead("/proc/self/nothing", programs.storeWorker), undefined);
});
