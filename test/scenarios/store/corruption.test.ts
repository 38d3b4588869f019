import { hash, randomInt } from "node:crypto";
import {
  copyFile,
  lstat,
  open,
  readFile,
  readdir,
  rename,
  rm,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../../src/errors.ts";
import type { Restoration, Statement } from "../../../src/store/store.ts";
import { falsifyIndex } from "../../store/support/falsify-index.ts";
import { startFixture } from "../../store/support/processes.ts";
import { keys, openStore, put, temporaryDir, until } from "../../store/support/temporary-store.ts";

const pageBytes = 4_096;
const appCount = 200;

function insertApp(id: string): Statement {
  return {
    sql: "INSERT INTO apps VALUES (?, 1000, ?, 'process', 'p', ?, '{}', 'running', 'RUNNING', NULL, 1, 1)",
    params: [id, `app ${id}`, JSON.stringify({ origin: "x".repeat(700) })],
  };
}

/** A closed store with several apps, a snapshot of all of them, and one meta row that is not in the snapshot. */
async function closedStore(): Promise<AsyncDisposable & { path: string; database: string; pages: number }> {
  const dir = await temporaryDir();
  {
    await using store = await openStore({ dir: dir.path });
    await store.write(Array.from({ length: appCount }, (_, n) => insertApp(`app-${n}`)));
    await store.housekeep();
    await store.write([put("later")]);
  }
  const database = join(dir.path, "svc.db");
  return { ...dir, database, pages: (await lstat(database)).size / pageBytes };
}

/** The digest of every file, except companions that inspecting the database creates. */
async function digests(dir: string): Promise<Record<string, string>> {
  const names = (await readdir(dir)).filter((name) => !/-(wal|shm)$/.test(name)).toSorted();
  return Object.fromEntries(
    await Promise.all(
      names.map(async (name) => [name, hash("sha256", await readFile(join(dir, name)))] as const),
    ),
  );
}

async function quarantined(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => name.includes(".corrupt-")).toSorted();
}

test.serial(
  "a database truncated at or inside any page is replaced by the snapshot and retained",
  async (t) => {
    await using original = await closedStore();
    t.true(original.pages > 30, `${original.pages} pages`);
    const whole = await readFile(original.database);
    const cuts = [0, 1, 2, 3, 7, original.pages >> 1, original.pages - 2, original.pages - 1].flatMap(
      (page) => [page * pageBytes, page * pageBytes + 100, page * pageBytes + pageBytes - 1],
    );
    for (const sizeBytes of cuts) {
      await using dir = await temporaryDir();
      await copyFile(join(original.path, "svc.db.bak"), join(dir.path, "svc.db.bak"));
      await writeFile(join(dir.path, "svc.db"), whole.subarray(0, sizeBytes));
      const warnings: object[] = [];
      await using store = await openStore({
        dir: dir.path,
        clock: { now: () => Date.UTC(2026, 0, 2, 3, 4, 5) },
        log: { warn: (details) => warnings.push(details) },
      });
      const quarantine = `${join(dir.path, "svc.db")}.corrupt-2026-01-02T03-04-05.000Z`;
      t.like(store.restoration, { quarantine }, `cut at ${sizeBytes}`);
      t.deepEqual(warnings, [store.restoration]);
      t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM apps")?.n, appCount);
      t.deepEqual(keys(store), []);
      t.true((await readFile(quarantine)).equals(whole.subarray(0, sizeBytes)));
      t.is((await lstat(join(dir.path, "svc.db"))).mode & 0o777, 0o600);
      await store.write([put("goes on")]);
    }
  },
);

/** Opens a store whose database has one flipped bit, and checks that all apps are there. */
async function openFlipped(
  t: ExecutionContext,
  { snapshot, whole, offset, bit }: { snapshot: string; whole: Buffer; offset: number; bit: number },
): Promise<Restoration | undefined> {
  await using dir = await temporaryDir();
  await copyFile(snapshot, join(dir.path, "svc.db.bak"));
  const damaged = Buffer.from(whole);
  damaged[offset] = (damaged[offset] ?? 0) ^ (1 << bit);
  await writeFile(join(dir.path, "svc.db"), damaged);
  const label = `byte ${offset}, bit ${bit}`;
  await using store = await openStore({ dir: dir.path });
  t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM apps")?.n, appCount, label);
  t.is(store.all("SELECT * FROM apps").length, appCount, label);
  if (store.restoration === undefined) return undefined;
  t.true((await readFile(store.restoration.quarantine ?? "")).equals(damaged), label);
  // All that writing an app involves, such as triggers, is intact.
  await store.write([insertApp("another"), { sql: "DELETE FROM apps WHERE id = 'another'" }]);
  return store.restoration;
}

test.serial(
  "flipped bits never lose apps: they are detected, or affect only one value or free space",
  async (t) => {
    t.timeout(240_000);
    await using original = await closedStore();
    const whole = await readFile(original.database);
    const schemaPages = Array.from({ length: original.pages }, (_, page) => page).filter((page) =>
      whole.subarray(page * pageBytes, (page + 1) * pageBytes).includes("CREATE TABLE"),
    );
    const flips = [
      // The bytes of the header with a meaning for SQLite, then random positions.
      ...[0, 16, 18, 20, 21, 28, 44, 47, 56, 60, 63, 68, 71, 100, 101, 103, 105],
      ...Array.from({ length: 20 }, () => randomInt(100, whole.length)),
      ...Array.from(
        { length: 20 },
        () => schemaPages[randomInt(schemaPages.length)]! * pageBytes + randomInt(100, pageBytes),
      ),
    ];
    let found = 0;
    for (const offset of flips) {
      const bit = randomInt(0, 8);
      const flip = { snapshot: join(original.path, "svc.db.bak"), whole, offset, bit };
      await t.notThrowsAsync(async () => {
        if ((await openFlipped(t, flip)) !== undefined) found++;
      }, `byte ${offset}, bit ${bit}`);
    }
    t.log(`${found} of ${flips.length} flips found`);
    t.true(found > 5);
  },
);

/** Bits of the header and of the schema's text whose flip leaves a database that passes each check of SQLite. */
const schemaFlips: readonly { what: string; at: (whole: Buffer, digest: string) => number; bit: number }[] = [
  { what: "the format of the file, which makes it read-only", at: () => 18, bit: 0 },
  { what: "the number of the schema's format", at: () => 47, bit: 4 },
  { what: "the schema's version, to an older one", at: () => 63, bit: 0 },
  { what: "the schema's version, to a newer one", at: () => 62, bit: 3 },
  { what: "the name of a table", at: within("CREATE TABLE runs (", "runs"), bit: 1 },
  { what: "the name of a table of apps", at: within("CREATE TABLE unproven_apps (", "unproven"), bit: 0 },
  { what: "the name of a column", at: within("desired TEXT NOT NULL", "desired"), bit: 1 },
  { what: "the type of a column", at: within("exit_code INTEGER", "INTEGER"), bit: 5 },
  { what: "a condition on a column", at: within("state <> 'INSTALLING'", "INSTALLING"), bit: 0 },
  { what: "a table in a trigger", at: within("DELETE FROM unproven_apps", "unproven_apps"), bit: 0 },
  { what: "a column in a trigger", at: within("DELETE FROM unproven_apps WHERE id", "id"), bit: 0 },
  { what: "the name of the digest's table", at: within("CREATE TABLE schema_digest (", "schema"), bit: 1 },
  { what: "the digest", at: (whole, digest) => whole.indexOf(digest), bit: 1 },
];

/** The position of the last character of `part` in `text`. */
function within(text: string, part: string): (whole: Buffer) => number {
  // The first page may have a copy in free space.
  return (whole) => whole.lastIndexOf(text) + text.lastIndexOf(part) + part.length - 1;
}

for (const { what, at, bit } of schemaFlips) {
  test(`a flipped bit in ${what} is detected when the store is opened`, async (t) => {
    await using original = await closedStore();
    const digest = compact(original.database);
    const whole = await readFile(original.database);
    const flip = { snapshot: join(original.path, "svc.db.bak"), whole, offset: at(whole, digest), bit };
    t.truthy((await openFlipped(t, flip))?.problem);
  });
}

/** Removes most earlier texts of the schema from free space. Returns the digest of the schema. */
function compact(path: string): string {
  using database = new DatabaseSync(path);
  database.exec("VACUUM");
  return String(database.prepare("SELECT value FROM schema_digest").get()?.["value"]);
}

test("a damaged page under a log in use is detected, and the log is retained with it and never replayed", async (t) => {
  await using dir = await temporaryDir();
  const database = join(dir.path, "svc.db");
  await using original = await closedStore();
  await copyFile(join(original.path, "svc.db.bak"), join(dir.path, "svc.db.bak"));
  await copyFile(original.database, database);
  {
    // Killed, so that its log stays.
    await using writer = startFixture("append", [dir.path, "x"]);
    await until(() => writer.lines().length > 5, 60_000);
  }
  const file = await open(database, "r+");
  for (let page = 1; page < original.pages; page += 2)
    await file.write(Buffer.alloc(64, 0xff), 0, 64, page * pageBytes);
  await file.close();
  await using store = await openStore({ dir: dir.path });
  t.truthy(store.restoration);
  t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM apps")?.n, appCount);
  t.deepEqual(keys(store), []);
  t.true((await quarantined(dir.path)).some((name) => name.endsWith("-wal")));
});

for (const { title, damage } of [
  { title: "a truncated one", damage: (path: string) => truncate(path, 5_000) },
  { title: "an empty one", damage: (path: string) => truncate(path, 0) },
  { title: "a missing one", damage: (path: string) => rm(path) },
]) {
  test(`without a good snapshot, ${title} is rejected repeatedly, and nothing is changed`, async (t) => {
    await using original = await closedStore();
    const snapshot = join(original.path, "svc.db.bak");
    await damage(original.database);
    await truncate(snapshot, 5_000);
    const before = await digests(original.path);
    for (let attempt = 0; attempt < 2; attempt++) {
      await t.throwsAsync(openStore({ dir: original.path }), {
        instanceOf: SvcError,
        code: "data_loss",
        message: /cannot be replaced by its snapshot .*svc\.db\.bak \(the snapshot is damaged too/,
      });
    }
    t.deepEqual(await digests(original.path), before);
    if (!("svc.db" in before)) return;
    await rm(snapshot);
    await t.throwsAsync(openStore({ dir: original.path }), {
      code: "data_loss",
      message: /the snapshot is missing/,
    });
  });
}

test("a lost database is restored from its snapshot", async (t) => {
  await using original = await closedStore();
  await rm(original.database);
  await using store = await openStore({ dir: original.path });
  t.is(store.restoration?.quarantine, undefined);
  t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM apps")?.n, appCount);
});

test("another program's database is rejected", async (t) => {
  await using dir = await temporaryDir();
  const foreign = new DatabaseSync(join(dir.path, "svc.db"));
  foreign.exec("CREATE TABLE theirs (x); PRAGMA user_version = 1");
  foreign.close();
  await t.throwsAsync(openStore({ dir: dir.path }), {
    code: "data_loss",
    message: /is not a database of svc/,
  });
});

test("a database that another process has open is not replaced under it", async (t) => {
  await using original = await closedStore();
  await using writer = startFixture("append", [original.path, "x"]);
  await until(() => writer.lines().length > 0, 60_000);
  await rename(original.database, join(original.path, "elsewhere"));
  await t.throwsAsync(openStore({ dir: original.path }), {
    code: "unavailable",
    message: /another svc process has it open/,
  });
});

test("a damaged database does not replace a good snapshot", async (t) => {
  await using original = await closedStore();
  const snapshot = join(original.path, "svc.db.bak");
  const good = await readFile(snapshot);
  await using store = await openStore({ dir: original.path });
  const file = await open(original.database, "r+");
  for (let page = 2; page < original.pages; page += 2)
    await file.write(Buffer.alloc(64, 0xff), 0, 64, page * pageBytes);
  await file.close();
  await t.throwsAsync(store.housekeep(), { instanceOf: SvcError });
  t.true((await readFile(snapshot)).equals(good));
  t.throws(() => store.all("SELECT * FROM apps"), { instanceOf: SvcError, code: "data_loss" });
});

/** Writes values that svc would not write. */
function damage(path: string, sql: string): void {
  using database = new DatabaseSync(path, { timeout: 5_000, defensive: false });
  database.exec(`PRAGMA ignore_check_constraints = ON; ${sql}`);
}

test("a document that is not JSON affects no other row, and the last intact snapshot is retained until it is repaired", async (t) => {
  await using original = await closedStore();
  const [snapshot, whole] = ["svc.db.bak", "svc.db.whole"].map((name) => join(original.path, name)) as [
    string,
    string,
  ];
  const good = await readFile(snapshot);
  const apps = (store: Awaited<ReturnType<typeof openStore>>) =>
    store.get<{ n: number }>("SELECT count(*) AS n FROM apps")?.n;
  damage(original.database, "UPDATE apps SET record = '[' WHERE id = 'app-7'");
  for (let start = 0; start < 2; start++) {
    await using store = await openStore({ dir: original.path });
    t.is(store.restoration, undefined);
    t.is(apps(store), appCount);
    t.deepEqual(keys(store), start === 0 ? ["later"] : ["later", "more"]);
    if (start === 0) await store.write([put("more")]);
    await store.housekeep();
    t.true((await readFile(whole)).equals(good));
    t.false((await readFile(snapshot)).equals(good));
    t.is((await lstat(whole)).mode & 0o777, 0o600);
  }
  damage(original.database, "UPDATE apps SET record = '{}' WHERE id = 'app-7'");
  await using store = await openStore({ dir: original.path });
  await store.housekeep();
  await t.throwsAsync(lstat(whole), { code: "ENOENT" });
});

for (const [what, sql] of [
  ["violates a CHECK of another column", "UPDATE apps SET owner_uid = -1, record = '[' WHERE id = 'app-7'"],
  ["has another type than its column", loosely("UPDATE apps SET created_at = 'x' WHERE id = 'app-7'")],
  ["has nothing where something must be", loosely("UPDATE apps SET record = NULL WHERE id = 'app-7'")],
  ["is one of many that are damaged", "UPDATE apps SET desired = 'maybe'"],
] as const) {
  test(`a row that ${what} affects no other row`, async (t) => {
    await using original = await closedStore();
    const good = await readFile(join(original.path, "svc.db.bak"));
    damage(original.database, sql);
    for (let start = 0; start < 2; start++) {
      await using store = await openStore({ dir: original.path });
      t.is(store.restoration, undefined);
      t.is(store.get<{ n: number }>("SELECT count(*) AS n FROM apps")?.n, appCount);
      t.deepEqual(keys(store), ["later"]);
      await store.housekeep();
      t.true((await readFile(join(original.path, "svc.db.whole"))).equals(good));
    }
  });
}

/** Temporarily changes the schema of apps to allow it. */
function loosely(sql: string): string {
  const schema = (change: string) =>
    `PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = ${change} WHERE name = 'apps';
     PRAGMA writable_schema = RESET;`;
  const loosened = "replace(replace(sql, 'record TEXT NOT NULL', 'record TEXT'), ') STRICT', ')')";
  return `CREATE TEMP TABLE strict AS SELECT sql FROM sqlite_schema WHERE name = 'apps';
    ${schema(loosened)} ${sql}; ${schema("(SELECT sql FROM temp.strict)")}`;
}

test("damaged pages are detected despite many damaged rows", async (t) => {
  await using original = await closedStore();
  damage(original.database, "UPDATE apps SET desired = 'maybe'");
  await falsifyIndex(original.path, "sqlite_autoindex_apps_1", "app-17", "aXp-17");
  await using store = await openStore({ dir: original.path });
  t.regex(store.restoration?.problem ?? "", /sqlite_autoindex_apps_1/);
});

test("a number that is too large for JavaScript does not prevent reading the other rows", async (t) => {
  await using original = await closedStore();
  damage(original.database, "UPDATE apps SET created_at = 9223372036854775807 WHERE id = 'app-7'");
  await using store = await openStore({ dir: original.path });
  for (let read = 0; read < 2; read++) {
    const rows = store.all<{ id: string; created_at: number; record: string }>("SELECT * FROM apps");
    t.is(rows.length, appCount);
    t.deepEqual(
      rows.filter(({ created_at }) => created_at !== 1).map(({ id, created_at }) => [id, created_at]),
      [["app-7", 2 ** 63]],
    );
  }
  t.is(store.get<{ created_at: number }>("SELECT * FROM apps WHERE id = 'app-7'")?.created_at, 2 ** 63);
  t.is(store.get("SELECT * FROM apps WHERE id = 'app-none'"), undefined);
});

function keysIn(snapshot: string): unknown[] {
  using copy = new DatabaseSync(snapshot, { readOnly: true });
  return copy
    .prepare("SELECT key FROM meta ORDER BY key")
    .all()
    .map(({ key }) => key);
}

test("the snapshot follows the database and stays unchanged while nothing changes", async (t) => {
  await using dir = await temporaryDir();
  await using store = await openStore({ dir: dir.path, housekeepingIntervalMs: 50 });
  const snapshot = join(dir.path, "svc.db.bak");
  await store.write([put("a")]);
  await until(() => keysIn(snapshot).length === 1);
  await store.housekeep();
  const { ino } = await lstat(snapshot);
  await store.housekeep();
  t.is((await lstat(snapshot)).ino, ino);
});

test("a snapshot is never dated after its start, so that a write at that moment is noticed", async (t) => {
  await using dir = await temporaryDir();
  await using store = await openStore({ dir: dir.path });
  for (let round = 0; round < 20; round++) {
    await store.write([put(`${round}`)]);
    await store.housekeep();
    const { mtimeMs, birthtimeMs } = await lstat(join(dir.path, "svc.db.bak"));
    // Not every file system stores creation times.
    t.true(birthtimeMs === 0 || mtimeMs <= birthtimeMs, `${mtimeMs} and ${birthtimeMs}`);
  }
});

test("a snapshot requested during another one contains the writes since the other one started", async (t) => {
  await using dir = await temporaryDir();
  const workerUrl = new URL("../../store/support/held-worker.ts", import.meta.url);
  await using store = await openStore({ dir: dir.path, workerUrl });
  const snapshot = join(dir.path, "svc.db.bak");
  await store.write([put("a")]);
  const first = store.housekeep();
  await until(() => keysIn(snapshot).length === 1);
  await store.write([put("b")]);
  const asked = [store.housekeep(), store.housekeep()];
  await writeFile(join(dir.path, "go on"), "");
  await Promise.all([first, ...asked]);
  t.deepEqual(keysIn(snapshot), ["a", "b"]);
});

test("a commit in progress when a snapshot starts is in the next one", async (t) => {
  await using dir = await temporaryDir();
  await using store = await openStore({ dir: dir.path });
  const [database, snapshot] = [join(dir.path, "svc.db"), join(dir.path, "svc.db.bak")];
  await store.write([put("a")]);
  const { mtime } = await lstat(`${database}-wal`);
  await using writer = startFixture("hold", [database]);
  await until(() => writer.lines().length > 0, 60_000);
  await store.housekeep();
  t.deepEqual(keysIn(snapshot), ["a"]);
  writer.child.stdin.end();
  t.is(await writer.exited, 0);
  // As if it had been written before, but the disk had been slow.
  await utimes(`${database}-wal`, mtime, mtime);
  await store.housekeep();
  t.deepEqual(keysIn(snapshot), ["a", "held"]);
});
