/**
 * An odd value in any column of a row, from a disk error or an editor, does not affect the lists of other rows, over
 * each transport.
 */
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
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { SourceService } from "../../gen/svc/v1/source_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { protocols, type Protocol, type TestDaemon } from "../support/daemon.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

const emptyDaemon = sharedDaemon();

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
  const has = (all: readonly { id?: string; name?: string; appId?: string }[], wanted: string): void =>
    assert.ok(
      all.some(({ id, name, appId }) => [id, name, appId].includes(wanted)),
      wanted,
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
    await daemon.client(ScheduleService).upsertSchedule({ id: name, trigger: "hourly", action });
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
    await daemon.client(BackupService).setBackupPolicy({ appId, trigger: "hourly", mode: "live" });
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
  for (const [command, wanted] of [
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
    t.true(output.includes(wanted), `${command}: ${output}`);
  }
});
