/** An app with a damaged row does not affect other apps, and can be stopped, restored from a backup, and removed. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { OperationService } from "../../gen/svc/v1/operation_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

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
    t.regex(refused.message, /^app "web-2": its stored data is damaged/);
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
