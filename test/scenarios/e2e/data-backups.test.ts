/** Backups of engine volumes, and of databases with constant writes: each is restored unchanged and consistent. */
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, rename, writeFile, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { promisify } from "node:util";
import type { Client } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { startEngine, type TestEngine } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { ownershipOf } from "../../support/ownership.ts";
import { projectFiles, writeFiles } from "../../support/packages.ts";

// Backups of compose projects contain their engine volumes, and restore them unchanged.

const nobody = 65_534;
const boot =
  "cd /state; [ -e who ] || { echo first > who; chmod 600 who; mkdir -m 2750 dir; echo a > dir/a; ln dir/a dir/b; " +
  "ln -s ../who dir/link; mkfifo pipe; echo x > tmp-1; echo cached > /cache/c; head -c 3000000 /dev/urandom > big; " +
  "touch -d '2001-02-03 04:05:06' dir/a; }; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

const manifest = `volumes: [{ name: cache, backup: false }, { name: state, excludes: ["tmp-*"] }]
backup: { restore: { exec: [sh, -c, "test ! -e $SVC_DATA_DIR/refuse"] } }
`;

async function install(daemon: TestDaemon, apps: Client<typeof AppService>): Promise<{ directory: string }> {
  const dir = join(daemon.dir, "keeper");
  const volumes = { state: "/state", cache: "/cache" };
  await writeFiles(
    dir,
    projectFiles({ id: "keeper", script: boot, volumes, manifest, service: { network_mode: "none" } }),
  );
  return apps.installApp({ spec: dir });
}

async function volumesOf(engine: TestEngine): Promise<string[]> {
  const { Volumes: volumes } = (await engine.request("GET", "/volumes")).expect(200) as {
    Volumes: { Name: string }[] | null;
  };
  return (volumes ?? []).map(({ Name }) => Name).sort();
}

/** Whether a container for svc's work on volumes exists. */
async function hasHelperContainer(
  engine: TestEngine,
  project: string,
  helper: "backup" | "copy",
): Promise<boolean> {
  return (await engine.request("GET", `/containers/${project}-volumes-${helper}/json`)).status === 200;
}

/** When a volume was created, in seconds; undefined if it does not exist. */
async function creationOf(engine: TestEngine, volume: string): Promise<string | undefined> {
  const answer = await engine.request("GET", `/volumes/${volume}`);
  return answer.status === 200 ? (JSON.parse(answer.text) as { CreatedAt: string }).CreatedAt : undefined;
}

/**
 * Runs a command on a volume beside the app. It runs on the host, because each container costs the engine half a second
 * of CPU time.
 */
async function within(engine: TestEngine, volume: string, script: string): Promise<string> {
  const cwd = join(engine.data, "volumes", volume, "_data");
  return (await promisify(execFile)("sh", ["-c", script], { cwd })).stdout;
}

/** Times in seconds, as backups store them. */
const listing =
  "find . ! -type p -exec md5sum {} + 2>/dev/null | sort; ls -lnR --time-style=+%s . | grep -v ^total";
const contents = (engine: TestEngine, volume: string): Promise<string> => within(engine, volume, listing);

async function* pieces(content: Buffer) {
  yield { storage: "local" };
  for (let at = 0; at < content.length; at += 500_000) {
    yield { storage: "local", content: { data: content.subarray(at, at + 500_000) } };
  }
}

composeTest(`engine volumes are backed up, browsed, verified and restored${needsCompose}`, async (t) => {
  t.timeout(300_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  await using user = await daemon.as(nobody);
  const [apps, backups] = [user.client(AppService), user.client(BackupService)];
  const { directory } = await install(daemon, apps);
  await apps.startApp({ id: "keeper" });
  const project = ownershipOf(daemon).projectOf("keeper");
  const state = `${project}_state`;
  await eventually(async () => assert.match(await within(engine, state, "ls"), /big/), 30_000);
  await within(engine, state, "test -s big && test -p pipe");
  const made = await backups.createBackup({ appId: "keeper", mode: "pause" });
  t.deepEqual(made.warnings, []);
  const ref = { appId: "keeper", storage: "local", name: made.results[0]?.name ?? "" };
  const paths = async (path: string): Promise<string[]> =>
    (await backups.browseBackup({ ...ref, path })).entries.map((entry) => entry.path);
  t.deepEqual(
    await paths(""),
    ["repo", "data", "volumes/state", "engine/state"],
    "without the paths that the manifest excludes",
  );
  t.deepEqual((await paths("engine/state")).toSorted(), [
    "engine/state/big",
    "engine/state/dir",
    "engine/state/pipe",
    "engine/state/who",
  ]);
  const read = await Array.fromAsync(
    backups.readBackupFile({ ...ref, path: "engine/state/dir/b" }),
    ({ content }) => Buffer.from(content?.data ?? []).toString(),
  );
  t.is(read.join(""), "a\n");
  t.is((await backups.verifyBackup(ref)).entries, made.entries);
  t.true((await backups.verifyBackup({ ...ref, deep: true })).restored);
  t.true((await backups.restoreBackup({ ...ref, stopApp: true, dryRun: true })).entries > 0n);

  await within(engine, state, "rm tmp-1");
  const before = await contents(engine, state);
  const spoil = (): Promise<string> =>
    within(engine, state, "rm -r dir; echo second > who; echo more > more; chmod 777 .");
  const kept = await spoil().then(() => contents(engine, state));
  t.not(kept, before);
  const volumes = await volumesOf(engine);
  // A restore that fails in its last step leaves the previous state.
  await writeFile(join(directory, "data/refuse"), "");
  const late = await backups.createBackup({ appId: "keeper" });
  await within(engine, state, "echo third > who");
  const third = await contents(engine, state);
  const failing = { ...ref, name: late.results[0]?.name ?? "", stopApp: true };
  t.is((await errorOf(backups.restoreBackup(failing))).reason, "build_failed");
  t.is(await contents(engine, state), third);
  t.deepEqual(await volumesOf(engine), volumes, "and no copy");
  t.is((await apps.getApp({ id: "keeper" })).state, "RUNNING");

  await rename(join(directory, "data/refuse"), join(directory, "data/mine"));
  const inside = { ...ref, stopApp: true, paths: ["engine/state/who"] };
  t.is((await errorOf(backups.restoreBackup(inside))).reason, "invalid_request");
  t.true((await backups.restoreBackup({ ...ref, stopApp: true, paths: ["engine/state"] })).restarted);
  t.is(await contents(engine, state), before, "owners, modes, times, links and bytes");
  t.deepEqual(await volumesOf(engine), volumes);
  t.is((await readFile(join(directory, "data/mine"))).length, 0, "the rest is unchanged");
  await spoil();
  t.true((await backups.restoreBackup({ ...ref, stopApp: true })).restarted);
  t.is(await contents(engine, state), before);
  t.is(
    await within(engine, `${project}_cache`, "cat c"),
    "cached\n",
    "a volume that no backup contains is unchanged",
  );

  const copy = await backups.restoreBackup({ ...ref, asNew: true });
  t.is(await contents(engine, `${ownershipOf(daemon).projectOf(copy.appId)}_state`), before);
  await apps.startApp({ id: copy.appId });
  await apps.removeApp({ id: copy.appId });
  t.deepEqual(await volumesOf(engine), volumes);

  // Another host, which has never seen the app.
  await using elsewhere = await startEngine();
  await elsewhere.images.build("svc/box:latest");
  await using second = await startDaemon({ config: elsewhere.config });
  await using there = await second.as(nobody);
  const bytes = await readFile(join(daemon.storeDir, "backups/keeper", ref.name));
  const uploaded = await there.client(BackupService).uploadBackup(pieces(bytes));
  await there.client(BackupService).restoreBackup({ ...ref, name: uploaded.name });
  const stateThere = `${ownershipOf(second).projectOf("keeper")}_state`;
  t.is(await contents(elsewhere, stateThere), before);
  await there.client(AppService).startApp({ id: "keeper" });
  t.is(await contents(elsewhere, stateThere), before, "a start does not change it");
  await there.client(AppService).removeApp({ id: "keeper" });
  await apps.removeApp({ id: "keeper" });
});

composeTest(
  `after a kill at any step of a restore, a volume is either unchanged or restored${needsCompose}`,
  async (t) => {
    t.timeout(450_000);
    await using engine = await startEngine();
    await engine.images.build("svc/box:latest");
    await using daemon = await startDaemon({ config: engine.config });
    const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
    await install(daemon, apps);
    await apps.startApp({ id: "keeper" });
    const project = ownershipOf(daemon).projectOf("keeper");
    const state = `${project}_state`;
    await eventually(async () => assert.match(await within(engine, state, "ls"), /big/), 30_000);
    // Large enough that its rebuild can be observed.
    await within(engine, state, "test -s big && rm tmp-1 && head -c 60000000 /dev/urandom > bulk");
    const made = await backups.createBackup({ appId: "keeper" });
    const ref = { appId: "keeper", storage: "local", name: made.results[0]?.name ?? "" };
    const good = await contents(engine, state);
    const spoil = (): Promise<string> =>
      within(engine, state, "echo second > who; head -c 3000000 /dev/zero > large; rm -r dir");
    await spoil();
    const spoiled = await contents(engine, state);
    const volumes = await volumesOf(engine);
    const seen: string[] = [];
    // The state of the volumes at the kill: staged, retained, or recreated and being filled.
    for (const what of ["staged", "kept", "anew"] as const) {
      const madeAt = await creationOf(engine, state);
      const isThen = async (): Promise<boolean> => {
        const names = await volumesOf(engine);
        // The helper containers are left behind and hold them.
        if (what === "staged")
          return (
            names.includes(`svc.restored.${state}`) && (await hasHelperContainer(engine, project, "backup"))
          );
        if (!names.includes(`svc.replaced.${state}`)) return false;
        if (what === "kept") return await hasHelperContainer(engine, project, "copy");
        return ![undefined, madeAt].includes(await creationOf(engine, state));
      };
      const restoring = errorOf(backups.restoreBackup({ ...ref, stopApp: true })).catch(() => undefined);
      let isOver = false;
      void restoring.finally(() => (isOver = true));
      await eventually(async () => assert.ok(isOver || (await isThen())), 60_000, 10);
      t.false(isOver, `${what} was seen`);
      await daemon.kill();
      await restoring;
      await daemon.restart();
      await eventually(async () => {
        assert.deepEqual(await volumesOf(engine), volumes);
        assert.equal((await apps.getApp({ id: "keeper" })).state, "RUNNING");
      }, 120_000);
      const now = await contents(engine, state);
      t.true(now === good || now === spoiled, what);
      seen.push(now === spoiled ? "as it was" : "restored");
      if (now === good) await spoil();
    }
    t.true(seen.includes("as it was"), seen.join());
    await backups.restoreBackup({ ...ref, stopApp: true });
    t.is(await contents(engine, state), good);
    await apps.removeApp({ id: "keeper" });
  },
);

composeTest(
  `a kill during a restore as a new app leaves none of the app's volumes${needsCompose}`,
  async (t) => {
    t.timeout(300_000);
    await using engine = await startEngine();
    await engine.images.build("svc/box:latest");
    await using daemon = await startDaemon({ config: engine.config });
    const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
    await install(daemon, apps);
    await apps.startApp({ id: "keeper" });
    const ownership = ownershipOf(daemon);
    const state = `${ownership.projectOf("keeper")}_state`;
    await eventually(async () => assert.match(await within(engine, state, "ls"), /big/), 30_000);
    // Large enough that its restore can be observed.
    await within(engine, state, "test -s big && head -c 60000000 /dev/urandom > bulk");
    const { results } = await backups.createBackup({ appId: "keeper" });
    const ref = { appId: "keeper", storage: "local", name: results[0]?.name ?? "" };
    const volumes = await volumesOf(engine);

    const restoring = errorOf(backups.restoreBackup({ ...ref, asNew: true })).catch(() => undefined);
    const restored = `${ownership.projectOf("keeper-2")}_state`;
    await eventually(async () => assert.ok((await volumesOf(engine)).includes(restored)), 60_000, 10);
    await daemon.kill();
    await restoring;
    await daemon.restart();

    await eventually(async () => {
      const { apps: listed } = await apps.listApps({});
      assert.deepEqual(
        listed.map(({ id }) => id),
        ["keeper"],
      );
    }, 120_000);
    t.deepEqual(await volumesOf(engine), volumes);
    await apps.removeApp({ id: "keeper" });
  },
);

// Backups of databases with constant writes are consistent.

// Backups of a database with constant writes are consistent: with a dump, frozen, or stopped.

const accounts = 100;
const total = accounts * 100;

/** Transfers amounts between accounts as fast as it can. A torn copy has a wrong sum or is not a valid database. */
const bank = `
import { DatabaseSync } from "node:sqlite";
const db = new DatabaseSync(process.env.SVC_DATA_DIR + "/bank.sqlite");
db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA busy_timeout = 10000");
db.exec("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, amount INTEGER)");
db.exec("CREATE TABLE IF NOT EXISTS moves (id INTEGER PRIMARY KEY, note BLOB)");
const { n } = db.prepare("SELECT count(*) AS n FROM accounts").get();
for (let id = n; id < ${accounts}; id++) db.prepare("INSERT INTO accounts VALUES (?, 100)").run(id);
const pay = db.prepare("UPDATE accounts SET amount = amount + ? WHERE id = ?");
const note = db.prepare("INSERT INTO moves (note) VALUES (randomblob(2000))");
const step = () => {
  for (let move = 0; move < 10; move++) {
    const [from, to] = [Math.floor(Math.random() * ${accounts}), Math.floor(Math.random() * ${accounts})];
    db.exec("BEGIN IMMEDIATE");
    pay.run(-1, from);
    note.run();
    pay.run(1, to);
    db.exec("COMMIT");
  }
  setTimeout(step, 5);
};
step();
`;
const dump = `
import { rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
const to = process.env.SVC_DATA_DIR + "/dump.sqlite";
rmSync(to, { force: true });
const db = new DatabaseSync(process.env.SVC_DATA_DIR + "/bank.sqlite");
db.exec("PRAGMA busy_timeout = 10000");
db.prepare("VACUUM INTO ?").run(to);
`;
const undump = `
import { renameSync, rmSync } from "node:fs";
const dir = process.env.SVC_DATA_DIR;
for (const end of ["-wal", "-shm"]) rmSync(dir + "/bank.sqlite" + end, { force: true });
renameSync(dir + "/dump.sqlite", dir + "/bank.sqlite");
`;
// The one on the PATH may be too old to include SQLite.
const node = JSON.stringify(process.execPath);
const hooks = `backup: { dump: { exec: [${node}, dump.mjs] }, restore: { exec: [${node}, undump.mjs] } }`;

function moves(directory: string): number {
  using db = new DatabaseSync(join(directory, "data/bank.sqlite"), { readOnly: true });
  return Number(db.prepare("SELECT count(*) AS n FROM moves").get()?.["n"]);
}

for (const [mode, how, backup] of [
  ["live", "with a dump", hooks],
  ["pause", "frozen, as it is", ""],
  ["stop", "stopped, as it is", ""],
] as const) {
  test(`a database under writes restores to a consistent state: ${mode}, ${how}`, async (t) => {
    await using daemon = await startDaemon();
    const apps = daemon.client(AppService);
    const backups = daemon.client(BackupService);
    const dir = join(daemon.dir, "bank");
    await mkdir(dir);
    const manifest = `id: bank\nname: Bank\nversion: "1.0.0"\nprocess: { exec: [${node}, bank.mjs] }\n${backup}\n`;
    const files = { "svc.yaml": manifest, "bank.mjs": bank, "dump.mjs": dump, "undump.mjs": undump };
    for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
    const { directory } = await apps.installApp({ spec: dir });
    await apps.startApp({ id: "bank" });
    await eventually(() => assert.ok(moves(directory) > 3000), 60_000);
    const before = moves(directory);
    const { results } = await backups.createBackup({ appId: "bank", mode });
    const after = await eventually(() => {
      const now = moves(directory);
      assert.ok(now > before, "it is written to again");
      return now;
    }, 60_000);
    const ref = { appId: "bank", storage: "local", name: results[0]?.name ?? "" };
    const copy = await backups.restoreBackup({ ...ref, asNew: true });
    const { directory: there } = await apps.getApp({ id: copy.appId });
    using db = new DatabaseSync(join(there, "data/bank.sqlite"));
    t.like(db.prepare("PRAGMA integrity_check").get(), { integrity_check: "ok" });
    t.like(db.prepare("SELECT sum(amount) AS total, count(*) AS n FROM accounts").get(), {
      total,
      n: accounts,
    });
    const kept = Number(db.prepare("SELECT count(*) AS n FROM moves").get()?.["n"]);
    t.true(kept >= before && kept <= after, `${before} <= ${kept} <= ${after}`);
    await apps.stopApp({ id: "bank" });
  });
}

// PostgreSQL in a compose project with constant writes is consistent after a restore.

const postgres = "/usr/lib/postgresql/15";
const hasPostgres = existsSync(join(postgres, "bin/pgbench"));
/** The Docker CLI, which some distributions package apart from the engine. */
const hasCommand = spawnSync("docker", ["--version"]).status === 0;
const databaseTest = hasPostgres && hasCommand ? composeTest : test.skip;
const needsDatabase = !hasPostgres
  ? " (skipped: needs PostgreSQL 15)"
  : hasCommand
    ? needsCompose
    : " (skipped: needs the command docker)";
const programs = ["postgres", "initdb", "pg_ctl", "psql", "pg_dump", "pgbench"].map((name) =>
  join(postgres, "bin", name),
);
const share = "/usr/share/postgresql/15";
/** Only the libraries and data that a new cluster needs. Most other files serve to compile programs. */
const parts = [
  ...programs,
  ...["plpgsql.so", "dict_snowball.so"].map((name) => join(postgres, "lib", name)),
  ...["timezonesets", "tsearch_data", "extension/plpgsql.control", "extension/plpgsql--1.0.sql"].map((name) =>
    join(share, name),
  ),
];
const waitMs = 120_000;

/**
 * Runs as an unattended script would: a dump starts while payments continue, some hundred a second. Each moves the same
 * amount in four tables, by PostgreSQL's own program.
 */
const bootDatabase = `
mkdir -p /state /run/db && chown nobody /state /run/db && chmod 700 /state && rm -f /state/postmaster.pid
if [ -e /host/load.sql ]; then rm -rf /state/*; cp /host/load.sql /tmp/load.sql && chown nobody /tmp/load.sql && rm /host/load.sql; fi
cat > /tmp/main <<'MAIN'
export PATH=${postgres}/bin:/bin PGHOST=/run/db PGUSER=postgres PGDATABASE=postgres
[ -e /state/PG_VERSION ] || initdb -D /state -U postgres -E UTF8 --no-locale --auth=trust --no-sync || exit 1
(
  until psql -qc 'select 1' >/dev/null 2>&1; do sleep 0.2; done
  if [ -e /tmp/load.sql ]; then psql -q -1 -v ON_ERROR_STOP=1 -f /tmp/load.sql && rm /tmp/load.sql || exit 1
  else psql -qc 'select 1 from pgbench_history limit 1' >/dev/null 2>&1 || pgbench -q -i -s 1 postgres; fi
  exec pgbench -n -c 2 -R 300 -T 3600 postgres
) &
exec postgres -D /state -k /run/db -c listen_addresses= -c fsync=off -c jit=off -c shared_buffers=16MB
MAIN
trap 'kill -INT $db; wait $db; exit 0' TERM INT
su -s /bin/sh nobody /tmp/main & db=$!
wait $db
`;

/** The invariant of pgbench(1)'s transactions: all four sums are the same. */
const sums = `select count(*) || ' ' || (sum(delta) = (select sum(abalance) from pgbench_accounts)
  and sum(delta) = (select sum(tbalance) from pgbench_tellers)
  and sum(delta) = (select sum(bbalance) from pgbench_branches)
  and 100000 = (select count(*) from pgbench_accounts)) from pgbench_history`;

const containerOf = (engine: TestEngine, appId: string): string =>
  `$(docker -H unix://${engine.socket} ps -q --filter label=svc.app=${appId})`;

/** Through its socket with this host's client, because each query through the engine takes three engine processes. */
async function ask(engine: TestEngine, appId: string, sql: string): Promise<string> {
  const label = [`svc.app=${appId}`];
  const filters = encodeURIComponent(JSON.stringify({ label }));
  const path = `/containers/json?filters=${filters}`;
  const [container] = (await engine.request("GET", path)).expect(200) as { Id: string }[];
  assert.ok(container !== undefined, "it runs");
  const inspected = await engine.request("GET", `/containers/${container.Id}/json`);
  const { State: state } = inspected.expect(200) as { State: { Pid: number } };
  const host = `/proc/${state.Pid}/root/run/db`;
  const options = ["-h", host, "-U", "postgres", "-At", "-c", sql, "postgres"];
  const { stdout } = await promisify(execFile)(join(postgres, "bin/psql"), options, { timeout: waitMs });
  return stdout.trim();
}

/** The number of payments if the sums are equal. */
async function payments(engine: TestEngine, project: string): Promise<number> {
  const [count = "", isConsistent] = (await ask(engine, project, sums)).split(" ");
  assert.equal(isConsistent, "true", "the four sums are the same");
  return Number(count);
}

/** Volumes inside of the app's directory. */
async function filesOf(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { withFileTypes: true });
  return entries.filter((entry) => !entry.isDirectory()).map(({ name }) => join(dir, name));
}

databaseTest(
  `PostgreSQL under writes restores to a consistent state: dump, frozen, stopped${needsDatabase}`,
  async (t) => {
    t.timeout(480_000);
    await using engine = await startEngine();
    await engine.images.build("svc/box:latest", {
      trees: [...parts, ...(await filesOf(share)), "/usr/share/zoneinfo/Etc"],
      programs,
    });
    await using daemon = await startDaemon({ config: engine.config });
    const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
    // Written to a file inside of the container, because the engine drops unread output two seconds after a command
    // exits.
    const dump = `docker -H unix://${engine.socket} exec ${containerOf(engine, "bank")} ${postgres}/bin/pg_dump -h /run/db -U postgres -f /host/dump.sql postgres`;
    const shapes = [
      {
        mode: "live",
        id: "bank",
        manifest: `volumes: [{ name: state, backup: false }]\nbackup: { dump: { exec: [sh, -c, ${JSON.stringify(dump)}] }, restore: { exec: [sh, -c, 'cd "$SVC_DATA_DIR/host" && mv dump.sql load.sql'] } }\n`,
      },
      { mode: "pause", id: "frozen", manifest: "" },
      { mode: "stop", id: "halted", manifest: "" },
    ];
    for (const { mode, id, manifest } of shapes) {
      const dir = join(daemon.dir, id);
      const files = projectFiles({
        ...{ id, script: bootDatabase, volumes: { state: "/state" }, manifest },
        service: { network_mode: "none", volumes: ["state:/state", "./host:/host"] },
      });
      await writeFiles(dir, files);
      await apps.installApp({ spec: dir });
      await apps.startApp({ id });
      await eventually(async () => assert.ok((await payments(engine, id)) > 500), waitMs);
      const before = await payments(engine, id);
      const made = await backups.createBackup({ appId: id, mode });
      const after = await eventually(async () => {
        const now = await payments(engine, id);
        assert.ok(now > before, "it is written to again");
        return now;
      }, waitMs);
      const ref = { appId: id, storage: "local", name: made.results[0]?.name ?? "" };
      const copy = await backups.restoreBackup({ ...ref, asNew: true });
      await apps.startApp({ id: copy.appId });
      const kept = await eventually(() => payments(engine, copy.appId), waitMs);
      t.true(kept >= before, `${mode}: ${kept} of at least ${before} payments`);
      await apps.removeApp({ id: copy.appId });
      // The archive is also restored into the app itself, where it discards a later state.
      const { restarted } = await backups.restoreBackup({ ...ref, stopApp: true });
      t.true(restarted);
      const back = await eventually(() => payments(engine, id), waitMs);
      t.true(back >= before, `${mode}: ${back} of at least ${before} payments, after ${after}`);
      await apps.removeApp({ id });
    }
  },
);
