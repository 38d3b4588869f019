/** Damaged and odd values in rows affect no other rows. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Code, ConnectError } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { OperationService } from "../../gen/svc/v1/operation_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { type TestDaemon, protocols, type Protocol } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

// An app with a damaged row does not affect other apps, and can be stopped, restored from a backup, and removed.

const emptyDaemon = sharedDaemon();

/** Writes values that the daemon would not. */
function damage({ storeDir }: TestDaemon, id: string, column: string, value: string | number): void {
  using database = new DatabaseSync(join(storeDir, "svc.db"), { timeout: 5_000 });
  database.exec("PRAGMA ignore_check_constraints = ON");
  const bound = typeof value === "number" ? BigInt(value) : value;
  database.prepare(`UPDATE apps SET ${column} = ?, updated_at = updated_at + 1 WHERE id = ?`).run(bound, id);
}

/** An app's table columns without its manifest. */
function wholeRecord(manifest: object): string {
  const stop = { signal: "SIGTERM", graceMs: 1 };
  const restart = { policy: "never", delayMs: 1, maxDelayMs: 1, maxAttempts: 0, resetAfterMs: 1 };
  const whole = {
    ...{ id: "p", name: "p", version: "1", summary: "", homepage: "", runtime: { kind: "process" } },
    ...{ ports: [], volumes: [], stop, restart, limits: {}, permissions: [] },
  };
  const origin = { kind: "directory", url: "/x", source: "", branch: "", tag: "", commit: "" };
  const document = { runUid: 0, origin, version: "1", changedAtMs: 1, failure: null };
  return JSON.stringify({ ...document, manifest: { ...whole, ...manifest } });
}

/** The app's response, or undefined while nothing listens. */
async function answerOf(port: number): Promise<number | undefined> {
  return fetch(`http://127.0.0.1:${port}/`).then(
    ({ status }) => status,
    () => undefined,
  );
}

async function installTwo(daemon: TestDaemon): Promise<number> {
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writePackage(join(daemon.dir, "package"), port);
  for (const id of ["web", "web-2"]) {
    assert.equal((await apps.installApp({ spec: join(daemon.dir, "package") })).id, id);
  }
  return port;
}

const seen = ({ apps }: { apps: { id: string; state: string }[] }): string[] =>
  apps.map(({ id, state }) => `${id} ${state}`);

for (const [what, column, value] of [
  ["is not JSON", "record", '{"runUid":'],
  ["lacks required fields", "record", "{}"],
  ["is JSON of another type", "record", "null"],
  [
    "has a manifest of another shape",
    "record",
    '{"runUid":0,"version":"1","origin":{"url":""},"manifest":{}}',
  ],
  ["names an unknown runtime", "runtime", "pr0cess"],
  ["has an invalid port", "record", wholeRecord({ ports: [null] })],
  ["has an invalid time", "created_at", 2 ** 60],
  ["is in an unknown state", "state", "ASLEEP"],
  ["has invalid settings", "settings", "[1"],
] as const) {
  test(`an app whose row ${what} is shown as failed beside the others, and can be removed`, async (t) => {
    const daemon = await emptyDaemon();
    const before = daemon.log().length;
    const apps = daemon.client(AppService);
    await installTwo(daemon);
    damage(daemon, "web-2", column, value);
    await eventually(async () =>
      assert.deepEqual(seen(await apps.listApps({})), ["web STOPPED", "web-2 FAILED"]),
    );
    const app = await apps.getApp({ id: "web-2" });
    t.regex(app.stateReason, /is damaged: restore a backup of it as a new app, then remove it/);
    const { apps: counts } = await daemon.client(DaemonService).getStatus({});
    t.like(counts, { total: 2, failed: 1, stopped: 1 });
    const refused = await errorOf(apps.startApp({ id: "web-2" }));
    t.like(refused, { code: "DataLoss", reason: "store_damaged" });
    t.regex(refused.message, /^app "web-2": the stored data is damaged/);
    const reports = await Promise.all([
      apps.getDiskReport({}),
      apps.getPortReport({}),
      apps.getAppStats({}),
      apps.listUpdates({}),
    ]);
    t.deepEqual(
      reports[0].apps.map(({ id, unknown }) => `${id} ${unknown === undefined}`),
      ["web true", "web-2 false"],
    );
    t.is((await apps.startApp({ id: "web" })).state, "RUNNING");
    await apps.removeApp({ id: "web-2" });
    t.deepEqual(seen(await apps.listApps({})), ["web RUNNING"]);
    // However often it was read.
    const log = daemon.log().slice(before);
    t.is(log.split('the stored data of app \\"web-2\\" cannot be read').length, 2, log);
  });
}

test("a damaged app keeps running, can be stopped, and is restored from a backup", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const backups = daemon.client(BackupService);
  const port = await installTwo(daemon);
  await apps.startApp({ id: "web" });
  const { results } = await backups.createBackup({ appId: "web" });
  damage(daemon, "web", "record", "{}");
  await daemon.restart();
  t.deepEqual(seen(await apps.listApps({})), ["web FAILED", "web-2 STOPPED"]);
  await eventually(async () => assert.equal(await answerOf(port), 200));
  await apps.stopApp({ id: "web" });
  t.is(await answerOf(port), undefined);
  t.like(await apps.getApp({ id: "web" }), { state: "FAILED", enabled: false });
  const name = results[0]?.name ?? "";
  const restored = await backups.restoreBackup({ appId: "web", storage: "local", name, asNew: true });
  t.is(restored.appId, "web-3");
  await apps.removeApp({ id: "web" });
  t.is((await apps.startApp({ id: "web-3" })).state, "RUNNING");
});

const appColumns = ["id", "owner_uid", "name", "runtime", "package_id", "record", "settings", "desired"];
const stateColumns = ["state", "state_reason", "created_at", "updated_at"];
/** SQL for values that the type of a column may reject. */
const oddValues = ["NULL", "''", "'/'", "x'00ff'", "char(0)", "-1", "0", "1 << 62", "'[]'", "'{}'", "1.5"];

test("no value in any column of an app hides the other apps", async (t) => {
  t.timeout(120_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  await installTwo(daemon);
  await apps.startApp({ id: "web" });
  using database = new DatabaseSync(join(daemon.storeDir, "svc.db"), { timeout: 5_000 });
  database.exec("PRAGMA ignore_check_constraints = ON");
  database.exec("CREATE TEMP TABLE whole AS SELECT * FROM apps WHERE id = 'web-2'");
  let written = 0;
  for (const column of [...appColumns, ...stateColumns]) {
    for (const value of oddValues) {
      const changed = column === "updated_at" ? "" : ", updated_at = updated_at + 1";
      try {
        database.exec(`UPDATE apps SET ${column} = ${value}${changed} WHERE id = 'web-2'`);
      } catch {
        // The type of the column rejects it.
        continue;
      }
      written++;
      const where = `${column} = ${value}`;
      const listed = await apps.listApps({}).catch((error: unknown) => t.fail(`${where}: ${String(error)}`));
      const names = typeof listed === "object" ? seen(listed) : [];
      t.true(names.includes("web RUNNING"), `${where}: ${names.join()}`);
      await t.notThrowsAsync(daemon.client(DaemonService).getStatus({}), where);
      await t.notThrowsAsync(apps.getPortReport({}), where);
      database.exec("DELETE FROM apps WHERE id <> 'web'; INSERT INTO apps SELECT * FROM whole");
    }
  }
  t.true(written > 60, String(written));
  await eventually(async () =>
    assert.deepEqual(seen(await apps.listApps({})), ["web RUNNING", "web-2 STOPPED"]),
  );
});

test("no value in any column of an operation hides the apps", async (t) => {
  t.timeout(120_000);
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  await installTwo(daemon);
  using database = new DatabaseSync(join(daemon.storeDir, "svc.db"), { timeout: 5_000 });
  database.exec("PRAGMA ignore_check_constraints = ON");
  const columns = {
    operations: ["app_id", "kind", "phase", "detail", "boot_id", "pid", "start_ticks", "started_at"],
    operation_records: ["id", "owner_uid", "app_id", "state", "started_at", "ended_at", "document", "log"],
  };
  const insert = {
    operations:
      "INSERT INTO operations (app_id, kind, phase, detail, boot_id, pid, start_ticks, started_at) " +
      "VALUES ('web-2', 'backup', 'x', '{}', 'x', 1, 1, 1)",
    operation_records:
      "INSERT INTO operation_records (id, owner_uid, app_id, state, started_at, ended_at, document, log) " +
      "VALUES ('x', 0, 'web-2', 'DONE', 1, 2, '{}', '[]')",
  };
  for (const table of ["operations", "operation_records"] as const) {
    for (const column of columns[table]) {
      for (const value of oddValues) {
        database.exec(insert[table]);
        const where = `${table}.${column} = ${value}`;
        try {
          database.exec(`UPDATE ${table} SET ${column} = ${value}`);
        } catch {
          database.exec(`DELETE FROM ${table}`);
          continue;
        }
        const names = await apps.listApps({}).then(seen, (error: unknown) => [String(error)]);
        t.true(names.includes("web STOPPED"), `${where}: ${names.join()}`);
        await t.notThrowsAsync(daemon.client(OperationService).listOperations({}), where);
        await t.notThrowsAsync(daemon.client(DaemonService).getStatus({}), where);
        database.exec(`DELETE FROM ${table}`);
      }
    }
  }
});

// An odd value in any column of a row, from a disk error or an editor, does not affect the lists of other rows, over
// each transport.

/** The damaged row in SQL, and the change counter that the table's readers check. */
const victims: Readonly<Record<string, readonly [where: string, mark?: string]>> = {
  apps: ["id = 'web'", "updated_at = updated_at + 1"],
  jobs: ["id = 'a'"],
  runs: ["id = (SELECT min(id) FROM runs)"],
  run_outputs: ["run = (SELECT min(id) FROM runs)"],
  job_skips: ["reason = 'late'"],
  backup_storages: ["name = 'a'"],
  backup_archives: ["app_id = 'web'"],
  backup_policies: ["app_id = 'web'"],
  credentials: ["name = 'a'"],
  sources: ["name = 'a'"],
  audit: ["seq = (SELECT max(seq) - 1 FROM audit)"],
};

/** Before and after all valid times, a missing user, and values outside of the contract's types. */
const integers = ["-1", "4294000001", "253402300800000", "4611686018427387904"];
/** Empty, a terminator of text elsewhere, invalid UTF-8 with half of a surrogate pair, and a long text. */
const texts = ["''", "char(0)", "CAST(x'61eda080ff' AS TEXT)", "printf('%.70000c', 'x')"];

/** The RPCs that show a table. The odd row itself is shown, or rejected by name. */
async function lists(daemon: TestDaemon, protocol: Protocol, table: string): Promise<void> {
  const apps = daemon.client(AppService, protocol);
  const jobs = daemon.client(ScheduleService, protocol);
  const backups = daemon.client(BackupService, protocol);
  const audit = daemon.client(AuditService, protocol);
  const has = (all: readonly { id?: string; name?: string; appId?: string }[], key: string): void =>
    assert.ok(
      all.some(({ id, name, appId }) => [id, name, appId].includes(key)),
      key,
    );
  const listApps = () => apps.listApps({}).then((answer) => has(answer.apps, "web-2"));
  const getStatus = () => daemon.client(DaemonService, protocol).getStatus({});
  const listBackups = () => [
    backups.listBackups({}).then((answer) => has(answer.backups, "web-2")),
    backups.listBackupStorages({}).then((answer) => has(answer.storages, "b")),
    backups.getBackupPolicy({ appId: "web-2" }),
    backups.getBackupPolicy({ appId: "web" }).catch(requireSaid),
    ...[listApps(), getStatus()],
  ];
  const listJobs = () => [
    jobs.listSchedules({}).then((answer) => has(answer.schedules, "b")),
    jobs.getSchedule({ id: "a" }).catch(requireSaid),
    jobs.listScheduleRuns({ id: "a" }).catch(requireSaid),
    getStatus(),
  ];
  const asked: Readonly<Record<string, () => readonly Promise<unknown>[]>> = {
    apps: () => [
      ...[...listBackups(), ...listJobs()],
      apps.getDiskReport({}).then((answer) => has(answer.apps, "web-2")),
      apps.getPortReport({}).then((answer) => has(answer.apps, "web-2")),
      apps.listUpdates({}),
      apps.getApp({ id: "web" }).catch(requireSaid),
    ],
    ...{ jobs: listJobs, runs: listJobs, run_outputs: listJobs, job_skips: listJobs },
    ...{ backup_storages: listBackups, backup_archives: listBackups, backup_policies: listBackups },
    credentials: () => [
      daemon
        .client(CredentialService, protocol)
        .listCredentials({})
        .then((answer) => has(answer.credentials, "b")),
    ],
    sources: () => [
      daemon
        .client(SourceService, protocol)
        .listSources({})
        .then((answer) => has(answer.sources, "b")),
    ],
    audit: () => [
      audit.listAudit({ limit: 5 }).then(({ records }) => assert.ok(records.length >= 4)),
      audit.verifyAudit({}),
    ],
  };
  await Promise.all(asked[table]?.() ?? [assert.fail(table)]);
}

function requireSaid(reason: unknown): void {
  const error = ConnectError.from(reason);
  assert.ok([Code.NotFound, Code.DataLoss].includes(error.code), error.message);
}

async function prepare(daemon: TestDaemon): Promise<void> {
  await writePackage(join(daemon.dir, "package"), await freePort());
  for (const id of ["web", "web-2"])
    assert.equal((await daemon.client(AppService).installApp({ spec: join(daemon.dir, "package") })).id, id);
  for (const name of ["a", "b"]) {
    const action = { type: "shell", command: "echo out; false" };
    // Runs that the test did not start would be damaged and put back together with its own.
    await daemon.client(ScheduleService).upsertSchedule({ id: name, trigger: "0 0 1 1 *", action });
    const location = { case: "local", value: { dir: join(daemon.dir, `at-${name}`) } } as const;
    await daemon.client(BackupService).upsertBackupStorage({ name, location });
    await daemon
      .client(CredentialService)
      .upsertCredential({ name, kind: "git", host: `h-${name}`, username: "u", secret: "s" });
    await daemon.client(SourceService).upsertSource({ name, url: join(daemon.dir, name) });
  }
  await daemon.client(ScheduleService).runSchedule({ id: "a" });
  await eventually(async () =>
    assert.equal((await daemon.client(ScheduleService).getSchedule({ id: "a" })).lastRun?.status, "FAILED"),
  );
  for (const appId of ["web", "web-2"]) {
    await daemon.client(BackupService).setBackupPolicy({ appId, trigger: "0 0 1 1 *", mode: "live" });
    assert.equal((await daemon.client(BackupService).createBackup({ appId })).results[0]?.error, "");
  }
}

/** The output of a CLI command. */
async function svc({ socketPath, dir }: TestDaemon, ...args: string[]) {
  const child = spawn(process.execPath, [main, "--socket", socketPath, ...args], {
    env: { PATH: process.env["PATH"] ?? "", HOME: dir },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
  const [code] = (await nextEvent(child, "close")) as [number | null];
  return { code, output };
}

function open({ storeDir }: TestDaemon): DatabaseSync {
  const database = new DatabaseSync(join(storeDir, "svc.db"), { timeout: 5_000 });
  database.exec("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF");
  return database;
}

/** The damaged columns, by table. */
function columnsOf(database: DatabaseSync): { table: string; column: string; type: string }[] {
  return Object.keys(victims).flatMap((table) =>
    (
      database.prepare("SELECT name AS column, type FROM pragma_table_info(?)").all(table) as {
        column: string;
        type: string;
      }[]
    )
      // The number of a record is its position, and its hash is for the chain.
      .filter(({ column }) => table !== "audit" || (column !== "seq" && column !== "hash"))
      .map((each) => ({ table, ...each })),
  );
}

/** Sets a column, so that readers read the row again. */
function set(
  database: DatabaseSync,
  table: string,
  assignment: string,
  where: string,
  ...params: never[]
): void {
  const [, mark] = victims[table] ?? [];
  const all =
    mark === undefined || assignment.startsWith("updated_at") ? assignment : `${assignment}, ${mark}`;
  database.prepare(`UPDATE ${table} SET ${all} WHERE ${where}`).run(...params);
  // As a push of many jobs records it: all are read again.
  if (table === "jobs") database.exec("INSERT INTO job_changes (owner_uid, id) VALUES (0, '')");
}

test("an odd value in any column does not affect the lists of all others over each transport", async (t) => {
  t.timeout(300_000);
  const daemon = await emptyDaemon();
  await prepare(daemon);
  using database = open(daemon);
  database.exec("INSERT INTO job_skips SELECT n, 'late', 1, 1 FROM jobs WHERE id = 'a'");
  let turn = 0;
  for (const { table, column, type } of columnsOf(database)) {
    const [where = ""] = victims[table] ?? [];
    for (const value of type === "INTEGER" ? integers : texts) {
      const select = database.prepare(`SELECT * FROM ${table} WHERE ${where}`);
      select.setReadBigInts(true);
      const row = select.get() as Record<string, never> | undefined;
      // A run without output has none, and the number of a run cannot be another run's.
      if (row === undefined) throw new Error(`there is no ${table} to damage`);
      set(database, table, `${column} = ${value}`, where);
      // Over REST the tested client compares responses with openapi.json, where names match svc's pattern.
      const isName = /^(id|name|.*_id|storage|target)$/.test(column);
      const protocol = protocols[turn++ % protocols.length] ?? "rest";
      await t.notThrowsAsync(
        lists(daemon, isName ? "connect" : protocol, table),
        `${table}.${column} = ${value} over ${protocol}`,
      );
      const isOfJob = table === "jobs" && isName;
      const others = Object.keys(row).filter((name) => name !== column && name !== "updated_at");
      const isIt = others.map((name) => `${name} IS ?`).join(" AND ");
      set(database, table, `${column} = ?`, isIt, ...[column, ...others].map((name) => row[name] as never));
      // A list shows its reader's last version.
      if (isOfJob)
        await eventually(async () =>
          assert.deepEqual(
            (await daemon.client(ScheduleService).listSchedules({})).schedules.map(({ id }) => id),
            ["a", "b"],
          ),
        );
    }
  }
  t.true(turn > 250, `${turn} values`);
});

test("the CLI shows other rows despite rows with invalid numbers", async (t) => {
  const daemon = await emptyDaemon();
  await prepare(daemon);
  await daemon.stop();
  {
    using database = open(daemon);
    for (const { table, column, type } of columnsOf(database)) {
      const isKey = /^(n|id|job|run|number|owner_uid|seq)$/.test(column);
      if (type !== "INTEGER" || isKey) continue;
      set(database, table, `${column} = 4611686018427387904`, victims[table]?.[0] ?? "");
    }
  }
  await daemon.restart();
  for (const [command, expected] of [
    ["ls", "web-2"],
    ["ports", ""],
    ["disk", "web-2"],
    ["schedule ls", "b "],
    ["schedule runs a", "FAILED"],
    ["backup ls", "web-2"],
    ["backup storage ls", "b "],
    ["credential ls", "b "],
    ["source ls", "b "],
    ["audit", "CreateBackup"],
    ["status", ""],
  ] as const) {
    const { code, output } = await svc(daemon, ...command.split(" "));
    t.is(code, 0, `${command}: ${output}`);
    t.true(output.includes(expected), `${command}: ${output}`);
  }
});
