import { open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { inspectAhead, openStore } from "../../src/store/store.ts";
import { keys, put, temporaryDir } from "./support/temporary-store.ts";

const workerUrl = new URL("../../src/store/worker.ts", import.meta.url);
const text = "x".repeat(1_000);

/** A closed store, with so many rows of a kilobyte and a snapshot of them. */
async function closedStore(rows: number): Promise<AsyncDisposable & { path: string }> {
  const dir = await temporaryDir();
  await using store = await openStore({ dir: dir.path });
  const columns = [
    Array.from({ length: rows }, (_, row) => `key-${row}`),
    Array.from({ length: rows }, () => text),
  ];
  await store.write([{ sql: "INSERT INTO meta VALUES (?, ?)", columns }]);
  await store.housekeep();
  return dir;
}

test("a large database is read before it is opened, and what was found there counts", async (t) => {
  await using dir = await closedStore(10_000);
  const ahead = await inspectAhead(dir.path, workerUrl);
  t.true(await ahead?.isSound);
  {
    await using store = await openStore({ dir: dir.path, ahead });
    t.is(store.restoration, undefined);
  }
  const database = await open(join(dir.path, "svc.db"), "r+");
  await database.write(Buffer.alloc(4_096, 0xff), 0, 4_096, 4_096 * 1_000);
  await database.close();
  const damaged = await inspectAhead(dir.path, workerUrl);
  t.false(await damaged?.isSound);
  await using store = await openStore({ dir: dir.path, ahead: damaged });
  t.truthy(store.restoration);
  t.is(store.get<{ count: number }>("SELECT count(*) AS count FROM meta")?.count, 10_000);
});

test("what was read ahead spares the reading", async (t) => {
  await using dir = await closedStore(10_000);
  const database = await open(join(dir.path, "svc.db"), "r+");
  await database.write(Buffer.alloc(4_096, 0xff), 0, 4_096, 4_096 * 1_000);
  await database.close();
  await using store = await openStore({ dir: dir.path, ahead: { isSound: Promise.resolve(true) } });
  t.is(store.restoration, undefined, "nobody has looked again");
});

test("who opens a store that is still being read writes nothing before it is known to be sound", async (t) => {
  await using dir = await closedStore(10_000);
  const verdict = Promise.withResolvers<boolean>();
  const ahead = { isSound: verdict.promise };
  await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true });
  const written: number[] = [];
  const writes = [1, 2, 3].map((key) => store.write([put(`${key}`)]).then(() => written.push(key)));
  await sleep(200);
  t.deepEqual(written, []);
  verdict.resolve(true);
  await Promise.all(writes);
  t.deepEqual(written, [1, 2, 3]);
});

test("nothing is written to a store of which it shows that it is damaged", async (t) => {
  await using dir = await closedStore(10_000);
  for (const isSound of [false, undefined]) {
    const ahead = { isSound: Promise.resolve(isSound) };
    await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true });
    await t.throwsAsync(store.write([put("new")]), { message: /is damaged and nothing is written/ });
    t.false(keys(store).includes("new"));
  }
});

test("what is restored because it cannot even be opened is written to, whatever was read ahead", async (t) => {
  await using dir = await closedStore(10_000);
  const database = await open(join(dir.path, "svc.db"), "r+");
  await database.write(Buffer.alloc(4_096, 0xff), 0, 4_096, 0);
  await database.close();
  const ahead = { isSound: Promise.resolve(false) };
  await using store = await openStore({ dir: dir.path, ahead, trustsMeanwhile: true });
  t.truthy(store.restoration);
  await store.write([put("new")]);
  t.true(keys(store).includes("new"));
});

test("nothing is begun for a small database, or where the store is not safe", async (t) => {
  await using small = await closedStore(10);
  t.is(await inspectAhead(small.path, workerUrl), undefined);
  t.is(await inspectAhead("/proc/self/nothing", workerUrl), undefined);
});
