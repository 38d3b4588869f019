/** PostgreSQL in a compose project with constant writes is consistent after a restore. */
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon } from "../../support/daemon.ts";
import { startEngine, type TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { projectFiles, writeFiles } from "../../support/packages.ts";

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
const boot = `
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
        ...{ id, script: boot, volumes: { state: "/state" }, manifest },
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
      // Also in its own place, where a later state is discarded.
      const { restarted } = await backups.restoreBackup({ ...ref, stopApp: true });
      t.true(restarted);
      const back = await eventually(() => payments(engine, id), waitMs);
      t.true(back >= before, `${mode}: ${back} of at least ${before} payments, after ${after}`);
      await apps.removeApp({ id });
    }
  },
);
