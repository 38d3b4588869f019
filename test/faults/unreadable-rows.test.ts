/**
 * An unreadable database row affects nothing else: its item is listed as unreadable, is not applied, and can be
 * overwritten and removed. For apps see `damaged-rows.test.ts`.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { storeCheck } from "../support/store-check.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();

/** Writes values that the daemon would not. */
function write({ storeDir }: TestDaemon, sql: string, ...params: (string | bigint)[]): void {
  using database = new DatabaseSync(join(storeDir, "svc.db"), { timeout: 5_000 });
  database.exec("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF");
  assert.ok(Number(database.prepare(sql).run(...params).changes) > 0, "nothing was damaged");
}

function read<T>({ storeDir }: TestDaemon, sql: string): T[] {
  using database = new DatabaseSync(join(storeDir, "svc.db"), { readOnly: true, timeout: 5_000 });
  return database.prepare(sql).all() as T[];
}

async function install(daemon: TestDaemon): Promise<void> {
  await writePackage(join(daemon.dir, "package"), await freePort());
  assert.equal((await daemon.client(AppService).installApp({ spec: join(daemon.dir, "package") })).id, "web");
}

/** How often the log reports something as unreadable. */
function timesLogged(log: string, name: string): number {
  return log.split(`the stored data of ${name.replaceAll('"', String.raw`\"`)} cannot be read`).length - 1;
}

interface Place {
  daemon: TestDaemon;
  /** The damage is visible: at once if the daemon kept running, otherwise since its start. */
  seen: (look: () => Promise<void>) => Promise<void>;
}

interface Case {
  readonly what: string;
  readonly table: string;
  readonly column: string;
  readonly where: string;
  /** In addition to the damage of every document. */
  readonly values: readonly (readonly [what: string, value: string])[];
  /** The name in the log and the doctor's output. */
  readonly name: string;
  readonly prepare: (daemon: TestDaemon) => Promise<unknown>;
  readonly check: (t: ExecutionContext, place: Place) => Promise<unknown>;
}

const shell = (command: string) => ({ type: "shell", command });
const ids = (all: readonly { id: string }[]): string[] => all.map(({ id }) => id).sort();

const cases: readonly Case[] = [
  {
    what: "job",
    table: "jobs",
    column: "document",
    where: "id = 'b'",
    name: `job "b" of uid ${process.getuid?.() ?? 0}`,
    values: [
      ["has an unknown trigger", jobDocument({ trigger: "whenever" })],
      ["has a trigger that is a number", jobDocument({ trigger: 5 })],
      ["has no action", jobDocument({ action: null })],
      ["has an unknown action", jobDocument({ action: { type: "dance" } })],
      ["has invalid headers", jobDocument({ action: { type: "http", url: "http://a", headers: { a: 1 } } })],
      ["has a timeout beyond the contract", jobDocument({ timeoutSecs: -1 })],
    ],
    prepare: async (daemon) => {
      await install(daemon);
      const jobs = daemon.client(ScheduleService);
      for (const id of ["a", "b", "c"])
        await jobs.upsertSchedule({
          id,
          // A run by its trigger would keep the test's own run from starting.
          trigger: "0 0 1 1 *",
          action: shell(`echo ${id}`),
          enabled: id !== "c",
        });
    },
    check: async (t, { daemon, seen }) => {
      const jobs = daemon.client(ScheduleService);
      await seen(async () => {
        const { schedules } = await jobs.listSchedules({});
        assert.deepEqual(ids(schedules), ["a", "b", "c"]);
        assert.match(schedules[1]?.disabledReason ?? "", /is damaged: remove it, or set it again/);
        assert.equal(schedules[1]?.nextRunUnix, undefined);
        assert.notEqual(schedules[0]?.nextRunUnix, undefined);
      });
      t.like(await jobs.getSchedule({ id: "b" }), { id: "b", trigger: "damaged" });
      const refused = await errorOf(jobs.runSchedule({ id: "b" }));
      t.like(refused, { code: "FailedPrecondition", reason: "not_possible" });
      t.regex(refused.message, /^job "b" does not run: the stored data is damaged/);
      t.is(
        (await errorOf(jobs.listScheduleRuns({ id: "b" }).then(() => jobs.cancelScheduleRun({ id: "b" }))))
          .code,
        "FailedPrecondition",
      );
      t.true((await jobs.runSchedule({ id: "a" })).started);
      // A removal reads the jobs of all users.
      await daemon.client(AppService).removeApp({ id: "web" });
      await jobs.upsertSchedule({ id: "b", trigger: "hourly", action: shell("true") });
      t.like(await jobs.getSchedule({ id: "b" }), { trigger: "hourly", disabledReason: "" });
      write(
        daemon,
        "UPDATE jobs SET document = '{}', owner_name = owner_name, revision = (SELECT max(revision) + 1 FROM job_changes) WHERE id = 'b'",
      );
      await eventually(async () => assert.notEqual((await jobs.getSchedule({ id: "b" })).disabledReason, ""));
      await jobs.removeSchedule({ id: "b" });
      t.deepEqual(ids((await jobs.listSchedules({})).schedules), ["a", "c"]);
    },
  },
  {
    what: "storage",
    table: "backup_storages",
    column: "location",
    where: "name = 'b'",
    name: 'storage "b"',
    values: [
      ["has a location of an unknown kind", '{"location":{}}'],
      ["has no directory", '{"location":{"kind":"local"}}'],
      ["has an endpoint that is not a URL", s3Document("nowhere")],
      ["has invalid recipients", '{"location":{"kind":"local","dir":"/x"},"recipients":{}}'],
    ],
    prepare: async (daemon) => {
      await install(daemon);
      const backups = daemon.client(BackupService);
      for (const name of ["a", "b"])
        await backups.upsertBackupStorage({ name, location: localAt(daemon, name) });
    },
    check: async (t, { daemon, seen }) => {
      const backups = daemon.client(BackupService);
      await seen(async () => {
        const { storages } = await backups.listBackupStorages({});
        assert.deepEqual(
          storages.map(({ name, problem, location }) => [name, problem !== "", location.case]),
          [
            ["local", false, "local"],
            ["a", false, "local"],
            ["b", true, undefined],
          ],
        );
      });
      const { results } = await backups.createBackup({ appId: "web", storages: ["a", "b"] });
      t.deepEqual(
        results.map(({ storage, error }) => `${storage} ${error}`.slice(0, 40)),
        ["a ", 'b storage "b": the stored data is damage'],
      );
      const listed = await backups.listBackups({});
      t.deepEqual(
        listed.backups.map(({ storage }) => storage),
        ["a"],
      );
      t.deepEqual(
        listed.errors.map(({ storage }) => storage),
        ["b"],
      );
      const refused = await errorOf(backups.testBackupStorage({ name: "b" }));
      t.like(refused, { code: "DataLoss", reason: "store_damaged" });
      await backups.setBackupPolicy({ appId: "web", trigger: "", storages: ["a"], mode: "live" });
      await backups.upsertBackupStorage({ name: "b", location: localAt(daemon, "b") });
      t.is((await backups.createBackup({ appId: "web", storages: ["b"] })).results[0]?.error, "");
      write(daemon, "UPDATE backup_storages SET location = '[]' WHERE name = 'b'");
      await backups.removeBackupStorage({ name: "b" });
      t.is((await backups.listBackupStorages({})).storages.length, 2);
    },
  },
  {
    what: "backup policy",
    table: "backup_policies",
    column: "policy",
    where: "app_id = 'web'",
    name: 'the backup policy of app "web"',
    values: [
      ["has an unknown trigger", '{"trigger":"whenever","storages":[],"mode":"live","verify":false}'],
      ["has invalid storages", '{"trigger":"hourly","storages":{},"mode":"live","verify":false}'],
    ],
    prepare: async (daemon) => {
      await install(daemon);
      await daemon.client(AppService).installApp({ spec: join(daemon.dir, "package") });
      for (const appId of ["web", "web-2"])
        await daemon
          .client(BackupService)
          .setBackupPolicy({ appId, trigger: "hourly", mode: "live", keep: 2 });
    },
    check: async (t, { daemon, seen }) => {
      const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
      await seen(async () => {
        const policy = await backups.getBackupPolicy({ appId: "web" });
        assert.match(policy.lastError, /is damaged: set it again; until then there are no scheduled backups/);
        assert.equal(policy.nextRunAt, undefined);
      });
      t.truthy((await backups.getBackupPolicy({ appId: "web-2" })).nextRunAt);
      t.deepEqual(
        (await apps.listApps({})).apps.map(({ id, backups: known }) => `${id} ${known?.overdue}`),
        ["web true", "web-2 false"],
      );
      t.is((await backups.createBackup({ appId: "web" })).results[0]?.error, "");
      await backups.setBackupPolicy({ appId: "web", trigger: "hourly", mode: "live", keep: 2 });
      t.like(await backups.getBackupPolicy({ appId: "web" }), { lastError: "", trigger: "hourly", keep: 2 });
      write(daemon, "UPDATE backup_policies SET policy = '[]' WHERE app_id = 'web'");
      await apps.removeApp({ id: "web" });
      t.is((await apps.listApps({})).apps.length, 1);
    },
  },
];

function jobDocument(other: object): string {
  const whole = {
    ...{
      trigger: "hourly",
      timeZone: "",
      enabled: true,
      comment: "",
      action: { type: "shell", command: "true" },
    },
    ...{ timeoutSecs: 60, jitterSecs: 0, retries: 0, catchUp: "none" },
  };
  return JSON.stringify({ ...whole, ...other });
}

function s3Document(endpoint: string): string {
  const place = { endpoint, region: "", bucket: "b", accessKey: "a", secretKey: "s", prefix: "", ca: "" };
  return JSON.stringify({ location: { kind: "s3", ...place } });
}

function localAt({ dir }: TestDaemon, name: string) {
  return { case: "local", value: { dir: join(dir, `backups-${name}`) } } as const;
}

const everyDocument = [
  ["is not JSON", "not json"],
  ["is empty", "{}"],
  ["is null", "null"],
  ["is a list", "[]"],
  ["is a number", "7"],
] as const;

for (const { what, table, column, where, values, name, prepare, check } of cases) {
  for (const [at, [wrong, value]] of [...everyDocument, ...values].entries()) {
    test(`a ${what} whose row ${wrong} is the only one affected`, async (t) => {
      const daemon = await emptyDaemon();
      const before = daemon.log().length;
      await prepare(daemon);
      const also =
        table === "jobs"
          ? ", owner_name = owner_name, revision = (SELECT max(revision) + 1 FROM job_changes)"
          : "";
      const damage = (): void =>
        write(daemon, `UPDATE ${table} SET ${column} = ?${also} WHERE ${where}`, value);
      // Testing both orders for each kind of damage would take twice as long without further coverage.
      const isWhileItRuns = at % 2 === 1;
      if (isWhileItRuns) damage();
      else {
        await daemon.stop();
        damage();
        await daemon.restart();
      }
      t.is(
        read<Record<string, string>>(daemon, `SELECT ${column} FROM ${table} WHERE ${where}`)[0]?.[column],
        value,
      );
      t.true((await storeCheck(daemon)).includes(`unreadable rows: ${name}:`), await storeCheck(daemon));
      await check(t, { daemon, seen: (look) => eventually(look) });
      // Once each time that it was damaged, however often it was read.
      t.true([1, 2].includes(timesLogged(daemon.log().slice(before), name)), daemon.log());
      t.regex(await storeCheck(daemon), /^ok: /);
    });
  }
}

/** Records that nobody can repair are not stored. */
test("leftover processes are cleaned up despite unreadable rows", async (t) => {
  const daemon = await emptyDaemon();
  await daemon.stop();
  const gone = JSON.stringify({ bootId: "gone", pid: 1, startTicks: 1 });
  const beside = JSON.stringify([join(daemon.dir, "x")]);
  for (const [name, executor, paths] of [
    ["a", "[", beside],
    ["b", "{}", beside],
    ["c", gone, "7"],
    ["d", gone, beside],
  ] as const)
    write(daemon, "INSERT INTO file_stages VALUES (?, 0, ?, ?)", `.svc-${name}`, paths, executor);
  for (const [name, executor] of [
    ["a", "nope"],
    ["b", gone],
  ] as const)
    write(
      daemon,
      "INSERT INTO backup_archives (storage, name, app_id, is_whole, executor) VALUES ('local', ?, 'x', 0, ?)",
      name,
      executor,
    );
  write(daemon, "INSERT OR REPLACE INTO meta VALUES ('token_rotation', 'nope')");
  write(
    daemon,
    "INSERT INTO operations (app_id, kind, phase, detail, boot_id, pid, start_ticks, started_at) VALUES ('nobody', 'clone', 'copy', '{\"lockOnly\":7}', 'gone', 1, 1, 1)",
  );
  const said = await storeCheck(daemon);
  for (const name of [
    '("nobody" )?',
    ".svc-a",
    ".svc-b",
    ".svc-c",
    'archive "a"',
    "the rotation of the primary token",
    'app "nobody" (clone)',
  ].slice(1))
    t.true(said.includes(name), `${name} is not in: ${said}`);
  await daemon.restart();
  await eventually(async () => {
    for (const table of ["file_stages", "backup_archives", "operations"])
      assert.deepEqual(read(daemon, `SELECT * FROM ${table}`), [], table);
  });
  t.is((await daemon.client(TokenService).getTokenStatus({})).graceUntil, undefined);
  // Their directories are not lost with their rows.
  t.true(daemon.log().includes('"name":".svc-c"'), daemon.log());
  t.regex(await storeCheck(daemon), /^ok: /);
});

for (const [what, column, value] of [
  ["has an invalid start time", "started_at", 2n ** 60n],
  ["has an invalid exit code", "exit_code", 99_999_999_999n],
] as const) {
  test(`a run that ${what} does not hide the others, and its job continues`, async (t) => {
    const daemon = await emptyDaemon();
    const jobs = daemon.client(ScheduleService);
    for (const id of ["a", "b"])
      await jobs.upsertSchedule({ id, trigger: "0 0 1 1 *", action: shell("true") });
    for (let run = 0; run < 2; run++) {
      await jobs.runSchedule({ id: "a" });
      await eventually(async () =>
        assert.equal((await jobs.getSchedule({ id: "a" })).lastRun?.status, "SUCCEEDED"),
      );
    }
    write(daemon, `UPDATE runs SET ${column} = ? WHERE id = (SELECT max(id) FROM runs)`, value);
    await eventually(async () =>
      assert.equal((await jobs.getSchedule({ id: "a" })).lastRun?.error, "the stored data is damaged"),
    );
    t.deepEqual(ids((await jobs.listSchedules({})).schedules), ["a", "b"]);
    const { runs } = await jobs.listScheduleRuns({ id: "a" });
    t.deepEqual(
      runs.map(({ status, error }) => `${status} ${error}`),
      ["SUCCEEDED the stored data is damaged", "SUCCEEDED "],
    );
    t.regex(await storeCheck(daemon), /unreadable rows: run \d+ of a job/);
    t.true((await jobs.runSchedule({ id: "a" })).started);
  });
}

for (const [what, kind, detail] of [
  ["has no detail", "restore", "nope"],
  ["has a wrong detail", "clone", '{"lockOnly":"yes"}'],
  ["is of an unknown kind", "dance", "{}"],
] as const) {
  test(`an interrupted operation that ${what} leaves its app unchanged`, async (t) => {
    const daemon = await emptyDaemon();
    const before = daemon.log().length;
    const apps = daemon.client(AppService);
    await install(daemon);
    await apps.installApp({ spec: join(daemon.dir, "package") });
    await daemon.stop();
    write(
      daemon,
      "INSERT INTO operations (app_id, kind, phase, detail, boot_id, pid, start_ticks, started_at) VALUES ('web', ?, 'copy', ?, 'gone', 1, 1, 1)",
      kind,
      detail,
    );
    t.regex(await storeCheck(daemon), /unreadable rows: the operation in progress on app "web"/);
    await daemon.restart();
    await eventually(async () => {
      const app = await apps.getApp({ id: "web" });
      assert.match(
        app.stateReason,
        /^the record of the last operation \(\w+\) is damaged: check the files of the app/,
      );
      t.is(app.state, "FAILED");
    });
    t.deepEqual(ids((await apps.listApps({})).apps), ["web", "web-2"]);
    // The row's kind is not lost with its other values.
    t.true(daemon.log().slice(before).includes(JSON.stringify({ kind, detail })), daemon.log());
    t.is((await apps.startApp({ id: "web" })).state, "RUNNING");
    t.regex(await storeCheck(daemon), /^ok: /);
  });
}
