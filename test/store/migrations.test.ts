import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { migrations, schemaDigestVersion } from "../../src/store/migrations.ts";
import { startFixture } from "./support/processes.ts";
import { keys, openStore, put, temporaryDir, until } from "./support/temporary-store.ts";

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
