/** Writes of the store, also on a full disk. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, rename, lstat, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { Readable } from "node:stream";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Worker } from "node:worker_threads";
import test from "ava";
import { build } from "esbuild";
import { SvcError } from "../../src/errors.ts";
import { currentExecutor, isExecutorAlive } from "../../src/store/executors.ts";
import { storeError } from "../../src/store/sqlite-failure.ts";
import { storeIdOf } from "../../src/store/store-id.ts";
import { StoreConflict, type Store } from "../../src/store/store.ts";
import { readProcessIdentity } from "../../src/sys/process-identity.ts";
import { nextEvent } from "../support/eventually.ts";
import { startFixture } from "./support/processes.ts";
import { keys, openStore, put, temporaryDir, temporaryStore, until } from "./support/temporary-store.ts";

test("a write is read back at once, and after opening the store again", async (t) => {
  await using dir = await temporaryDir();
  {
    await using store = await openStore({ dir: dir.path });
    await store.write([put("a", "1")]);
    t.is(store.get<{ value: string }>("SELECT value FROM meta WHERE key = ?", "a")?.value, "1");
    t.is(store.get("SELECT value FROM meta WHERE key = ?", "b"), undefined);
  }
  await using store = await openStore({ dir: dir.path });
  t.deepEqual(keys(store), ["a"]);
  t.is(store.restoration, undefined);
});

test("each statement returns its changes, its row ID and the rows of RETURNING", async (t) => {
  await using temporary = await temporaryStore();
  const insert =
    "INSERT INTO operations (app_id, kind, phase, boot_id, pid, start_ticks, started_at) VALUES (?, 'start', '', 'b', 1, 2, 3)";
  const [first, second, updated, selected] = await temporary.store.write([
    { sql: insert, params: ["a"] },
    { sql: `${insert} RETURNING id, app_id`, params: ["b"], changes: 1 },
    { sql: "UPDATE operations SET phase = 'x'", changes: 2 },
    { sql: "SELECT app_id FROM operations WHERE phase = ? ORDER BY id", params: ["x"] },
  ]);
  t.like(first, { changes: 1, lastInsertRowid: 1 });
  t.deepEqual(second, { changes: 1, lastInsertRowid: 2, rows: [{ id: 2, app_id: "b" }] });
  t.like(updated, { changes: 2 });
  t.deepEqual(selected?.rows, [{ app_id: "a" }, { app_id: "b" }]);
});

test("a statement with columns runs once for each of their rows", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  const sql = "INSERT INTO meta (value, key) VALUES (?, ?)";
  const columns = [["a", "b", "c"]];
  const [many, none, updated] = await store.write([
    { sql, params: ["same"], columns, changes: 3 },
    { sql, params: ["same"], columns: [[]], changes: 0 },
    {
      sql: "UPDATE meta SET value = ? WHERE key = ?",
      columns: [
        ["1", "2"],
        ["a", "none"],
      ],
    },
  ]);
  t.is(many?.changes, 3);
  t.is(none?.changes, 0);
  t.is(updated?.changes, 1);
  t.deepEqual(store.all("SELECT key, value FROM meta WHERE length(key) = 1 ORDER BY key"), [
    { key: "a", value: "1" },
    { key: "b", value: "same" },
    { key: "c", value: "same" },
  ]);
});

for (const { title, statements, index, reason } of [
  {
    title: "an UPDATE that finds no row",
    statements: [put("b"), { sql: "UPDATE meta SET value = 'x' WHERE key = 'none'", changes: 1 }],
    index: 1,
    reason: "changes",
  },
  {
    title: "an UPDATE that finds too many rows",
    statements: [put("b"), { sql: "UPDATE meta SET value = 'x'", changes: 1 }],
    index: 1,
    reason: "changes",
  },
  {
    title: "one of many rows that finds none to update",
    statements: [
      put("b"),
      { sql: "UPDATE meta SET value = 'x' WHERE key = ?", columns: [["a", "none"]], changes: 2 },
    ],
    index: 1,
    reason: "changes",
  },
  {
    title: "one existing key among many",
    statements: [put("b"), { sql: "INSERT INTO meta (value, key) VALUES ('', ?)", columns: [["c", "a"]] }],
    index: 1,
    reason: "unique",
  },
  { title: "a key that is taken", statements: [put("b"), put("c"), put("a")], index: 2, reason: "unique" },
  {
    title: "a value that violates a CHECK",
    statements: [
      put("b"),
      {
        sql: "INSERT INTO apps VALUES ('x', 0, 'x', 'process', 'x', '{', '{}', 'running', 'RUNNING', NULL, 0, 0)",
      },
    ],
    index: 1,
    reason: "constraint",
  },
]) {
  test(`${title} undoes the whole write and no other`, async (t) => {
    await using temporary = await temporaryStore();
    const { store } = temporary;
    await store.write([put("a")]);
    const [before, refused, after] = await Promise.allSettled([
      store.write([put("before")]),
      store.write(statements),
      store.write([put("after")]),
    ]);
    t.is(before.status, "fulfilled");
    t.is(after.status, "fulfilled");
    t.is(refused.status, "rejected");
    const error = (refused as PromiseRejectedResult).reason as StoreConflict;
    t.true(error instanceof StoreConflict);
    t.like(error, { statementIndex: index, reason });
    t.deepEqual(keys(store), ["a", "after", "before"]);
  });
}

test("a statement that is not SQL is an internal error and undoes only its write", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  const results = await Promise.allSettled([
    store.write([put("a"), { sql: "INSERT INTO nowhere VALUES (1)" }]),
    store.write([put("b")]),
  ]);
  t.is(results[0].status, "rejected");
  t.like((results[0] as PromiseRejectedResult).reason as SvcError, { name: "SvcError", code: "internal" });
  t.is(results[1].status, "fulfilled");
  t.deepEqual(keys(store), ["b"]);
});

test("a value that cannot be sent to the writer fails its write and the next one works", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  const unsendable = (() => 1) as unknown as string;
  await t.throwsAsync(store.write([{ sql: "SELECT ?", params: [unsendable] }]), { code: "internal" });
  await store.write([put("a")]);
  t.deepEqual(keys(store), ["a"]);
});

test("a second operation on one app is a conflict", async (t) => {
  await using temporary = await temporaryStore();
  const insert =
    "INSERT INTO operations (app_id, kind, phase, boot_id, pid, start_ticks, started_at) VALUES ('a', 'start', '', 'b', 1, 2, 3)";
  const results = await Promise.allSettled([1, 2].map(() => temporary.store.write([{ sql: insert }])));
  t.is(results[0]?.status, "fulfilled");
  t.like((results[1] as PromiseRejectedResult).reason as StoreConflict, {
    reason: "unique",
    statementIndex: 0,
  });
});

test("writes keep their order, and many of them share a commit", async (t) => {
  await using temporary = await temporaryStore();
  const { store } = temporary;
  await store.write([put("counter", "0")]);
  const count = 1_000;
  let commits = 0;
  using _listener = store.onChange(() => commits++);
  await Promise.all(
    Array.from({ length: count }, (_, n) =>
      store.write([
        {
          sql: "UPDATE meta SET value = ? WHERE key = 'counter' AND value = ?",
          params: [String(n + 1), String(n)],
          changes: 1,
        },
      ]),
    ),
  );
  t.is(store.get<{ value: string }>("SELECT value FROM meta")?.value, String(count));
  t.true(commits <= 10, `${commits} commits for ${count} writes`);
});

test("a full queue rejects with too_many, essential writes only at twice the limit", async (t) => {
  await using temporary = await temporaryStore({ writeQueueLimit: 5 });
  const { store } = temporary;
  const results = await Promise.allSettled([
    ...Array.from({ length: 7 }, (_, n) => store.write([put(`n${n}`)])),
    ...Array.from({ length: 7 }, (_, n) => store.write([put(`e${n}`)], { essential: true })),
  ]);
  const refused = results.flatMap((result, index) => (result.status === "rejected" ? [index] : []));
  t.deepEqual(refused, [5, 6, 12, 13]);
  t.like((results[5] as PromiseRejectedResult).reason as SvcError, {
    code: "resource_exhausted",
    reason: "too_many",
  });
  t.is(keys(store).length, 10);
});

test("a write that another process blocks past its deadline fails as unavailable and changes nothing", async (t) => {
  await using temporary = await temporaryStore();
  const { store, dir } = temporary;
  await using holder = startFixture("hold", [`${dir}/svc.db`]);
  await until(() => holder.lines().includes("held"));
  const patient = store.write([put("patient")]);
  await t.throwsAsync(store.write([put("hasty")], { timeoutMs: 300 }), {
    instanceOf: SvcError,
    code: "unavailable",
  });
  holder.child.stdin.end();
  await patient;
  t.deepEqual(keys(store), ["held", "patient"]);
});

test("a late write succeeds while no other process holds the lock", async (t) => {
  await using temporary = await temporaryStore();
  // The writer's thread does not exist before that.
  await temporary.store.write([put("late")], { timeoutMs: 0 });
  t.deepEqual(keys(temporary.store), ["late"]);
});

test("a new store starts its one thread with the first write", async (t) => {
  await using dir = await temporaryDir();
  const threads: string[] = [];
  const note = (worker: Worker): void => void threads.push(worker.threadName ?? "");
  process.on("worker", note);
  try {
    await using store = await openStore({ dir: dir.path });
    t.deepEqual(keys(store), []);
    t.deepEqual(threads, []);
    await store.write([put("a")]);
    t.deepEqual(threads, ["store-writer"]);
  } finally {
    process.off("worker", note);
  }
});

test("closing finishes the writes in progress and rejects new ones", async (t) => {
  await using dir = await temporaryDir();
  const store = await openStore({ dir: dir.path });
  const writes = Array.from({ length: 300 }, (_, n) => store.write([put(`k${n}`)]));
  const closed = store[Symbol.asyncDispose]();
  await t.throwsAsync(store.write([put("late")]), { code: "unavailable" });
  await Promise.all([...writes, closed, store[Symbol.asyncDispose]()]);
  await using again = await openStore({ dir: dir.path });
  t.is(keys(again).length, 300);
});

test("a bundled worker works if its URL is given", async (t) => {
  await using dir = await temporaryDir();
  const outfile = join(dir.path, "worker.mjs");
  const entry = fileURLToPath(new URL("../../src/store/worker.ts", import.meta.url));
  await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    logLevel: "error",
  });
  await using temporary = await temporaryStore({ workerUrl: pathToFileURL(outfile) });
  await temporary.store.write([put("a")]);
  t.deepEqual(keys(temporary.store), ["a"]);
});

test("the calling thread cannot write", async (t) => {
  await using temporary = await temporaryStore();
  const refused = t.throws(() => temporary.store.all("INSERT INTO meta VALUES ('a', '') RETURNING key"));
  t.regex(String(refused.cause), /readonly/);
});

test("this process is alive; an earlier boot and an earlier process with its PID are not", async (t) => {
  const executor = await currentExecutor();
  t.is(executor.pid, process.pid);
  t.regex(executor.bootId, /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  t.true(await isExecutorAlive(executor));
  t.false(await isExecutorAlive({ ...executor, startTicks: executor.startTicks - 1 }));
  t.false(await isExecutorAlive({ ...executor, bootId: "00000000-0000-0000-0000-000000000000" }));
  for (const pid of [0, -1, 1.5, Number.NaN, 2 ** 31]) t.false(await isExecutorAlive({ ...executor, pid }));
});

test("a process that exited is dead, even as a zombie", async (t) => {
  // The shell becomes a sleep and never waits for its first child, which stays a zombie.
  const parent = spawn("sh", ["-c", "sh -c 'read _; exit' <&3 & echo $!; exec sleep 60"], {
    stdio: ["ignore", "pipe", "inherit", "pipe"],
  });
  t.teardown(async () => {
    parent.kill("SIGKILL");
    await nextEvent(parent, "close");
  });
  const [line] = (await nextEvent(parent.stdout as Readable, "data")) as [Buffer];
  const identity = await readProcessIdentity(Number(line.toString()));
  t.truthy(identity);
  if (identity === undefined) return;
  const executor = { ...(await currentExecutor()), ...identity };
  t.true(await isExecutorAlive(executor));
  parent.stdio[3]?.destroy();
  let alive = true;
  const watch = setInterval(() => void isExecutorAlive(executor).then((is) => (alive = is)), 5);
  await until(() => !alive);
  clearInterval(watch);
  t.notThrows(() => process.kill(executor.pid, 0), "the zombie is still there");
});

async function idIn(dir: string): Promise<string> {
  await using store = await openStore({ dir });
  return storeIdOf(store);
}

test("a moved store keeps its ID, and a new store at the same path has another", async (t) => {
  await using parent = await temporaryDir();
  const dir = join(parent.path, "store");
  const id = await idIn(dir);
  t.regex(id, /^[0-9a-f]{16}$/);
  t.is(await idIn(dir), id, "opened again");
  await cp(dir, join(parent.path, "copy"), { recursive: true });
  t.is(await idIn(join(parent.path, "copy")), id, "copied");
  await rename(dir, join(parent.path, "moved"));
  t.is(await idIn(join(parent.path, "moved")), id, "moved");
  t.not(await idIn(dir), id, "another one");
});

test("a read-only disk is reported, not an internal error", async (t) => {
  await using dir = await temporaryDir();
  const path = join(dir.path, "some.db");
  new DatabaseSync(path).close();
  using database = new DatabaseSync(path, { readOnly: true });
  const error = t.throws(() => database.exec("CREATE TABLE t (x)"));
  const told = storeError(error);
  t.is(told.reason, "unavailable");
  t.regex(told.message, /^the disk that holds the store fails or can only be read: see the kernel's log/);
});

const isRoot = process.getuid?.() === 0;
const rootTest = isRoot ? test.serial : test.serial.skip;
const title = (what: string): string =>
  `full disk: ${what}${isRoot ? "" : " (skipped: mounting a tmpfs needs root)"}`;

async function run(command: string, args: readonly string[]): Promise<void> {
  const child = spawn(command, args, { stdio: "inherit" });
  const [code] = (await nextEvent(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}`);
}

/** A small file system. */
async function smallDisk(
  sizeMiB: number,
): Promise<AsyncDisposable & { path: string; fill(): Promise<void> }> {
  const dir = await temporaryDir();
  await run("mount", ["-t", "tmpfs", "-o", `size=${sizeMiB}m,mode=0700`, "tmpfs", dir.path]);
  return {
    path: dir.path,
    async fill() {
      const file = await open(join(dir.path, "filler"), "a");
      try {
        for (const sizeBytes of [1_048_576, 4_096]) {
          for (;;) await file.appendFile(Buffer.alloc(sizeBytes, 1)).catch(stopWhenFull);
        }
      } catch (error) {
        if (error !== full) throw error;
      } finally {
        await file.close();
      }
    },
    async [Symbol.asyncDispose]() {
      await run("umount", [dir.path]);
      await dir[Symbol.asyncDispose]();
    },
  };
}

const full = Symbol("full");
function stopWhenFull(error: unknown): void {
  throw (error as NodeJS.ErrnoException).code === "ENOSPC" ? full : error;
}

const diskFull = { instanceOf: SvcError, code: "resource_exhausted", message: /disk .* full/ };

/** Writes until the log needs more space than is free. */
async function writeUntilFull(store: Store): Promise<string[]> {
  const kept: string[] = [];
  for (let n = 0; n < 10_000; n++) {
    const key = `k${String(n).padStart(5, "0")}`;
    try {
      await store.write([put(key, "x".repeat(2_000))]);
    } catch (error) {
      if (!(error instanceof SvcError) || error.reason !== "disk_full") throw error;
      return kept;
    }
    kept.push(key);
  }
  throw new Error("the disk was never full");
}

rootTest(title("a write fails with disk_full, the old state stays, essential writes succeed"), async (t) => {
  await using disk = await smallDisk(32);
  const reserve = join(disk.path, "reserve");
  let kept: string[];
  {
    await using store = await openStore({ dir: disk.path });
    await store.write([put("before")]);
    await store.housekeep();
    const { blocks } = await lstat(reserve);
    t.true(blocks * 512 >= 8 * 1_048_576, "really allocated");

    await disk.fill();
    kept = await writeUntilFull(store);
    t.deepEqual(keys(store), ["before", ...kept]);
    t.true(existsSync(reserve));

    for (let n = 0; n < 200; n++) {
      await store.write(
        [{ sql: "UPDATE meta SET value = ? WHERE key = 'before'", params: [String(n)], changes: 1 }],
        {
          essential: true,
        },
      );
    }
    t.false(existsSync(reserve), "given up");
    t.is(store.get<{ value: string }>("SELECT value FROM meta WHERE key = 'before'")?.value, "199");
    await t.throwsAsync(store.write([put("greedy")]), diskFull, "the reserved space is for essential writes");

    const together = await Promise.allSettled([
      store.write([put("greedy")]),
      store.write([put("essential")], { essential: true }),
      store.write([put("greedy too")]),
    ]);
    t.deepEqual(
      together.map(({ status }) => status),
      ["rejected", "fulfilled", "rejected"],
    );

    await rm(join(disk.path, "filler"));
    await store.write([put("roomy")]);
    // Waits until the writer has finished its work after the first write.
    await store.write([put("roomy too")]);
    t.true(existsSync(reserve), "made again at once");
  }
  await using store = await openStore({ dir: disk.path });
  t.is(store.restoration, undefined);
  t.deepEqual(keys(store), ["before", "essential", ...kept, "roomy", "roomy too"]);
});

rootTest(title("a write that records a stop succeeds even when the reserve is used up"), async (t) => {
  await using disk = await smallDisk(32);
  await using store = await openStore({ dir: disk.path });
  await store.write([put("state")]);
  await disk.fill();
  await writeUntilFull(store);
  const record = (value: string): Promise<unknown> =>
    store.write([{ sql: "UPDATE meta SET value = ? WHERE key = 'state'", params: [value], changes: 1 }], {
      essential: true,
    });
  await record("the reserve was given up for this");
  t.false(existsSync(join(disk.path, "reserve")));
  await disk.fill();
  for (let n = 0; n < 200; n++) await record(String(n));
  t.is(store.get<{ value: string }>("SELECT value FROM meta WHERE key = 'state'")?.value, "199");
  await t.throwsAsync(store.write([put("greedy")]), diskFull);
});

rootTest(title("a store opens, and space can be freed"), async (t) => {
  await using disk = await smallDisk(32);
  {
    await using store = await openStore({ dir: disk.path });
    await store.write([put("a"), put("b")]);
    await store.housekeep();
  }
  await disk.fill();
  await using store = await openStore({ dir: disk.path });
  t.deepEqual(keys(store), ["a", "b"]);
  await store.write([{ sql: "DELETE FROM meta WHERE key = 'b'", changes: 1 }], { essential: true });
  t.deepEqual(keys(store), ["a"]);
});

rootTest(title("creating a store fails with a clear error and leaves no partial files"), async (t) => {
  await using disk = await smallDisk(2);
  await disk.fill();
  await t.throwsAsync(openStore({ dir: disk.path }), diskFull);
  await rm(join(disk.path, "filler"));
  await using store = await openStore({ dir: disk.path });
  t.deepEqual(keys(store), []);
  t.is(store.restoration, undefined);
});

rootTest(title("a snapshot that does not fit leaves the old one and is logged"), async (t) => {
  await using disk = await smallDisk(32);
  const warnings: string[] = [];
  await using store = await openStore({
    dir: disk.path,
    housekeepingIntervalMs: 100,
    log: { warn: (_, message) => warnings.push(message) },
  });
  await store.write([put("a")]);
  await store.housekeep();
  await store.write(Array.from({ length: 1_000 }, (_, n) => put(`k${n}`, "x".repeat(2_000))));
  await disk.fill();
  await store.write([put("b")], { essential: true });
  await disk.fill();
  // Housekeeping may have replaced the snapshot before.
  const { ino } = await lstat(join(disk.path, "svc.db.bak"));
  warnings.length = 0;
  await until(() => warnings.some((warning) => warning.includes("snapshot")));
  t.is((await lstat(join(disk.path, "svc.db.bak"))).ino, ino);
});
