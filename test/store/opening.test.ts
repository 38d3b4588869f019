/** The opening of a store: inspection, migrations, and ownership of the database. */
import {
  chmod,
  chown,
  cp,
  link,
  lstat,
  mkdir,
  open,
  readFile,
  readdir,
  symlink,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { migrations, schemaDigestVersion } from "../../src/store/migrations.ts";
import { type InspectionAhead, inspectAhead } from "../../src/store/store.ts";
import { programs } from "../support/programs.ts";
import { falsifyIndex, recordsOf } from "./support/falsify-index.ts";
import { startFixture } from "./support/processes.ts";
import { keys, openStore, put, temporaryDir, until } from "./support/temporary-store.ts";

// The opening of a store: inspection and migrations.

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
  test(`an index of the audit log that disagrees with its records is rebuilt, ${isAhead ? "ahead" : "when the store is opened"}`, async (t) => {
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

const next = [
  ...migrations,
  "CREATE TABLE later (x INTEGER NOT NULL) STRICT; INSERT INTO meta VALUES ('step', '')",
];

test("an older database runs the missing steps once, keeps its rows and gets a snapshot", async (t) => {
  await using dir = await temporaryDir();
  {
    await using store = await openStore({ dir: dir.path });
    await store.write([put("a")]);
  }
  for (let attempt = 0; attempt < 2; attempt++) {
    await using store = await openStore({ dir: dir.path, migrations: next });
    t.deepEqual(keys(store), ["a", "step"]);
    t.deepEqual(store.all("SELECT * FROM later"), []);
  }
  const snapshot = new DatabaseSync(join(dir.path, "svc.db.bak"), { readOnly: true });
  t.is(snapshot.prepare("PRAGMA user_version").get()?.["user_version"], next.length);
  snapshot.close();
});

test("a database of a version without a digest of the schema gets one, and each migration updates it", async (t) => {
  await using dir = await temporaryDir();
  const digests: unknown[] = [];
  for (const steps of [migrations.slice(0, schemaDigestVersion - 1), migrations, next]) {
    await using store = await openStore({ dir: dir.path, migrations: steps });
    t.is(store.restoration, undefined);
    if (steps.length >= schemaDigestVersion)
      digests.push(store.get<{ value: string }>("SELECT value FROM schema_digest")?.value);
  }
  t.is(new Set(digests).size, 2);
  await using store = await openStore({ dir: dir.path, migrations: next });
  t.is(store.restoration, undefined);
  await store.housekeep();
});

for (const { title, step } of [
  { title: "is not SQL", step: "CREATE TABLE later (x); nonsense" },
  {
    title: "leaves rows that refer to missing rows",
    step: "CREATE TABLE later (x REFERENCES apps (id)); INSERT INTO later VALUES ('none')",
  },
]) {
  test(`a step that ${title} is rolled back and fails`, async (t) => {
    await using dir = await temporaryDir();
    await (await openStore({ dir: dir.path }))[Symbol.asyncDispose]();
    await t.throwsAsync(openStore({ dir: dir.path, migrations: [...migrations, step] }), {
      instanceOf: SvcError,
      code: "internal",
      message: /could not be migrated to version \d+ and is unchanged/,
    });
    await using store = await openStore({ dir: dir.path });
    t.deepEqual(store.all("SELECT 1 FROM sqlite_schema WHERE name = 'later'"), []);
  });
}

test("damaged rows do not prevent a migration, and are retained", async (t) => {
  await using dir = await temporaryDir();
  await (await openStore({ dir: dir.path }))[Symbol.asyncDispose]();
  {
    using database = new DatabaseSync(join(dir.path, "svc.db"), { enableForeignKeyConstraints: false });
    database.exec(`PRAGMA ignore_check_constraints = ON;
      INSERT INTO job_skips VALUES (7, '', -1, 1);
      INSERT INTO runs (job, trigger, attempt, started_at, status) VALUES (7, 'nobody', 0, 1, 'ASLEEP')`);
  }
  const step = `
    CREATE TABLE other_skips (job INTEGER REFERENCES jobs (n), reason TEXT CHECK (reason <> ''), count INTEGER) STRICT;
    INSERT INTO other_skips SELECT job, reason, count FROM job_skips;
    DROP TABLE job_skips;`;
  await using store = await openStore({ dir: dir.path, migrations: [...migrations, step] });
  t.deepEqual(
    store.all("SELECT job, reason, count FROM other_skips").map((row) => ({ ...(row as object) })),
    [{ job: 7, reason: "", count: -1 }],
  );
  t.is(store.all("SELECT 1 FROM runs").length, 1);
});

test("a newer database is rejected and stays unchanged", async (t) => {
  await using dir = await temporaryDir();
  await (await openStore({ dir: dir.path, migrations: next }))[Symbol.asyncDispose]();
  await t.throwsAsync(openStore({ dir: dir.path }), {
    instanceOf: SvcError,
    code: "failed_precondition",
    message: new RegExp(`has version ${next.length} and this svc knows versions up to ${migrations.length}`),
  });
  await using store = await openStore({ dir: dir.path, migrations: next });
  t.is(store.restoration, undefined);
});

test("a database is not migrated under a process that runs on the older schema", async (t) => {
  await using dir = await temporaryDir();
  await using writer = startFixture("append", [dir.path, "x"]);
  await until(() => writer.lines().length > 0, 60_000);
  await t.throwsAsync(openStore({ dir: dir.path, migrations: next }), {
    code: "unavailable",
    message: /another svc process has it open; stop the other process/,
  });
});

// AVA runs each test file in a separate process, so this affects no other test.
process.umask(0);

const isRoot = process.getuid?.() === 0;
const rootTest = isRoot ? test : test.skip;
const onlyRoot = isRoot ? "" : " (skipped: needs root)";

const mode = async (path: string): Promise<string> => ((await lstat(path)).mode & 0o7777).toString(8);

test("with umask 0, every file of the store is accessible only to its owner", async (t) => {
  await using parent = await temporaryDir();
  const dir = join(parent.path, "new");
  {
    await using store = await openStore({ dir });
    await store.write([put("a")]);
    await store.housekeep();
    const names = await readdir(dir);
    t.deepEqual(names.toSorted(), [
      "reserve",
      "svc.db",
      "svc.db-shm",
      "svc.db-wal",
      "svc.db.bak",
      "svc.lock",
    ]);
    for (const name of names) t.is(await mode(join(dir, name)), "600", name);
  }
  t.is(await mode(dir), isRoot ? "711" : "700");
});

test("opening removes other users' access to the files", async (t) => {
  await using parent = await temporaryDir();
  const dir = join(parent.path, "open");
  await mkdir(dir, { mode: 0o777 });
  await (await openStore({ dir }))[Symbol.asyncDispose]();
  t.is(await mode(dir), "755");
  await chmod(join(dir, "svc.db"), 0o666);
  await (await openStore({ dir }))[Symbol.asyncDispose]();
  t.is(await mode(join(dir, "svc.db")), "600");
});

for (const name of ["svc.db", "svc.db-wal", "svc.db-shm", "svc.db.bak", "svc.lock", "reserve"]) {
  for (const dangling of [false, true]) {
    test(`a symlink planted as ${name}${dangling ? " to nowhere" : ""} is rejected and not followed`, async (t) => {
      await using dir = await temporaryDir();
      const target = join(dir.path, "canary");
      if (!dangling) await writeFile(target, "canary");
      await symlink(target, join(dir.path, name));
      await t.throwsAsync(openStore({ dir: dir.path }), {
        instanceOf: SvcError,
        code: "failed_precondition",
        message: /is not a plain file/,
      });
      if (dangling) await t.throwsAsync(lstat(target), { code: "ENOENT" });
      else t.is(await readFile(target, "utf8"), "canary");
    });
  }
}

test("a hard link to another file is rejected as the database", async (t) => {
  await using dir = await temporaryDir();
  await writeFile(join(dir.path, "canary"), "canary");
  await link(join(dir.path, "canary"), join(dir.path, "svc.db"));
  await t.throwsAsync(openStore({ dir: dir.path }), { message: /has several hard links/ });
});

rootTest(`another user's file or directory is rejected${onlyRoot}`, async (t) => {
  await using dir = await temporaryDir();
  await writeFile(join(dir.path, "svc.db"), "");
  await chown(join(dir.path, "svc.db"), 65_534, 65_534);
  await t.throwsAsync(openStore({ dir: dir.path }), { message: /svc\.db belongs to uid 65534/ });
  await chown(dir.path, 65_534, 65_534);
  await t.throwsAsync(openStore({ dir: dir.path }), { message: /belongs to uid 65534 and not to uid 0/ });
});
