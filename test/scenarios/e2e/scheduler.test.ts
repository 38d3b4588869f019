/** Jobs that fire in a daemon, the main job of an app, and the outcome of their runs. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { access, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { type Client, createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { type ScheduleRun, ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { parseConfig } from "../../../src/daemon/config.ts";
import { startDaemon as startHere } from "../../../src/daemon/daemon.ts";
import { sourcePages } from "../../../src/daemon/page-files.ts";
import { isAlive } from "../../run-as/support/world.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import {
  type TestDaemon,
  isRoot,
  needsRoot,
  protocols,
  socketTransport,
  startDaemon,
} from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { addVersion, freePort, writeRepository } from "../../support/packages.ts";
import { programs } from "../../support/programs.ts";
import { main } from "../../support/svc-main.ts";

// Jobs that fire in a daemon, and the outcome of their runs when it exits.

type Schedules = Client<typeof ScheduleService>;

const rootTest = isRoot ? test : test.skip;
const yearly = "0 0 1 1 *";
const emptyDaemon = sharedDaemon();

/** The runs of a job, newest first, once there are at least `count` and all have finished. */
function endedRuns(
  schedules: Schedules,
  id: string,
  count: number,
  timeoutMs?: number,
): Promise<ScheduleRun[]> {
  return eventually(async () => {
    const { runs } = await schedules.listScheduleRuns({ id });
    assert.equal(runs.length, count);
    assert.ok(runs.every(({ status }) => status !== "RUNNING"));
    return runs;
  }, timeoutMs);
}

/** A daemon in this process with a fake clock. @param stateDir of the previous daemon; by default a new one */
async function startWithClock(clock: FakeClock, stateDir?: string) {
  const dir = stateDir ?? (await mkdtemp(join(tmpdir(), "svc-clock-")));
  const socket = join(dir, "svc.sock");
  const config = parseConfig(
    { api: { listen: "127.0.0.1:0", socket }, store: { dir: join(dir, "store") }, log: { level: "silent" } },
    join(dir, "svc.toml"),
    { uid: process.getuid?.() ?? 0, home: dir, env: {} },
  );
  const daemon = await startHere({
    config,
    reloadConfig: () => Promise.resolve(config),
    version: "0.0.0",
    programs,
    selfUid: process.getuid?.() ?? 0,
    pages: sourcePages(),
    clock,
  });
  return {
    schedules: createClient(ScheduleService, socketTransport(socket, "connect")),
    async [Symbol.asyncDispose]() {
      await daemon[Symbol.asyncDispose]();
      if (stateDir === undefined) await rm(dir, { recursive: true, force: true });
    },
  };
}

test("a job fires in its minute, and again after a suspend", async (t) => {
  const clock = new FakeClock("2026-03-28T22:59:50Z");
  await using daemon = await startWithClock(clock);
  const { schedules } = daemon;
  const action = { type: "shell", command: "echo fired" } as const;
  const made = await schedules.upsertSchedule({
    id: "j",
    trigger: "30 2 * * *",
    timeZone: "Europe/Berlin",
    action,
  });
  t.is(made.nextRunUnix, BigInt(Date.parse("2026-03-29T01:00:00Z") / 1_000));
  clock.pass(2 * 3_600_000);
  t.deepEqual((await schedules.listScheduleRuns({ id: "j" })).runs, []);
  clock.pass(10_000);
  const [first] = await endedRuns(schedules, "j", 1);
  t.like(first, { trigger: "schedule", status: "SUCCEEDED", output: "fired\n", attempt: 1 });
  t.is(Number(first?.scheduledAt?.seconds) * 1_000, Date.parse("2026-03-29T01:00:00Z"));
  t.is(Number(first?.startedAt?.seconds) * 1_000, Date.parse("2026-03-29T01:00:00Z"));
  // The host is suspended past the next firing, which is three minutes old when it resumes.
  clock.step(23.5 * 3_600_000 + 3 * 60_000);
  clock.pass(5_000);
  const [second] = await endedRuns(schedules, "j", 2);
  t.is(Number(second?.scheduledAt?.seconds) * 1_000, Date.parse("2026-03-30T00:30:00Z"));
});

test("the next daemon retries a failed run", async (t) => {
  const clock = new FakeClock("2026-03-28T22:59:50Z");
  const dir = await mkdtemp(join(tmpdir(), "svc-clock-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const action = { type: "shell", command: "exit 3" } as const;
  {
    await using daemon = await startWithClock(clock, dir);
    await daemon.schedules.upsertSchedule({ id: "j", trigger: "0 23 * * *", utc: true, retries: 1, action });
    clock.pass(10_000);
    await endedRuns(daemon.schedules, "j", 1);
  }
  clock.pass(20_000);
  await using next = await startWithClock(clock, dir);
  clock.pass(9_000);
  t.is((await next.schedules.listScheduleRuns({ id: "j" })).runs.length, 1, "not yet");
  clock.pass(1_000);
  const [second] = await endedRuns(next.schedules, "j", 2);
  t.like(second, { trigger: "schedule", attempt: 2, status: "FAILED", exitCode: 3 });
  t.is(Number(second?.scheduledAt?.seconds) * 1_000, Date.parse("2026-03-28T23:00:00Z"));
});

test("a graceful stop cancels the active runs", async (t) => {
  const daemon = await emptyDaemon();
  const { pids, schedules } = await runLong(daemon);
  await daemon.stop();
  for (const pid of pids) t.false(await isAlive(pid));
  await daemon.restart();
  const [run] = await endedRuns(schedules, "long", 1);
  t.like(run, { status: "CANCELED", error: "the run was canceled: the daemon stopped", output: "begun\n" });
});

test("a watched run is recorded the same way, and its watcher is notified", async (t) => {
  const daemon = await emptyDaemon();
  const schedules = daemon.client(ScheduleService);
  const action = { type: "shell", command: "echo begun; sleep 1000" };
  await schedules.upsertSchedule({ id: "watched", trigger: "daily@03:00", utc: true, action });
  const child = spawn(process.execPath, [main, "--socket", daemon.socketPath, "schedule", "run", "watched"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const told = text(child.stderr);
  await nextEvent(child.stdout, "data");
  const exited = once(child, "exit");
  await daemon.stop();
  t.deepEqual(await exited, [6, null]);
  await daemon.restart();
  const [run] = await endedRuns(daemon.client(ScheduleService), "watched", 1);
  t.is(
    await told,
    `svc: run ${run?.id} of watched was interrupted with the daemon; see its result: svc schedule runs watched\n`,
  );
  t.like(run, { status: "CANCELED", error: "the run was canceled: the daemon stopped", output: "begun\n" });
});

test("when the daemon is killed, so are its runs, and the next daemon records it", async (t) => {
  const daemon = await emptyDaemon();
  const { pids, schedules } = await runLong(daemon);
  await daemon.kill();
  for (const pid of pids) await eventually(async () => assert.ok(!(await isAlive(pid))), 20_000);
  await daemon.restart();
  const [run] = await endedRuns(schedules, "long", 1);
  t.is(run?.status, "INTERRUPTED");
  await schedules.upsertSchedule({
    id: "long",
    trigger: yearly,
    action: { type: "shell", command: "echo again" },
  });
  t.true((await schedules.runSchedule({ id: "long" })).started, "it can run again");
});

test("a reboot is recorded before it happens, and can be canceled until then", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-reboot-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const canary = join(dir, "rebooted");
  await using daemon = await startDaemon({ config: `[system]\nreboot_command = ["touch", "${canary}"]` });
  const schedules = daemon.client(ScheduleService);
  await schedules.upsertSchedule({ id: "r", trigger: yearly, action: { type: "node_reboot" } });
  await schedules.runSchedule({ id: "r" });
  await endedRuns(schedules, "r", 1);
  t.is((await schedules.cancelScheduleRun({ id: "r" })).status, "CANCELED");
  await t.throwsAsync(access(canary));
  const { started } = await schedules.runSchedule({ id: "r" });
  t.true(started);
  const [run] = await endedRuns(schedules, "r", 2);
  t.like(run, { status: "SUCCEEDED", output: "the host reboots in 3 s\n" });
  await t.throwsAsync(access(canary), undefined, "not yet");
  await eventually(() => access(canary));
});

test("app_update upgrades a running app to the newest version; a version that fails to start leaves the old one running", async (t) => {
  const daemon = await emptyDaemon();
  const [schedules, apps] = [daemon.client(ScheduleService), daemon.client(AppService)];
  const [dir, port] = [join(daemon.dir, "repository"), await freePort()];
  const url = await writeRepository(dir, port, [{ version: "1.0.0" }]);
  await apps.installApp({ spec: url });
  await apps.startApp({ id: "web" });
  await schedules.upsertSchedule({ id: "u", trigger: yearly, action: { type: "app_update", app: "web" } });

  await addVersion(dir, port, { version: "2.0.0" });
  await schedules.runSchedule({ id: "u" });
  const [updated] = await endedRuns(schedules, "u", 1, 60_000);
  t.like(updated, { status: "SUCCEEDED", output: "web upgraded from v1.0.0 to v2.0.0\n", error: "" });
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", version: "v2.0.0" });
  await schedules.runSchedule({ id: "u" });
  const [same] = await endedRuns(schedules, "u", 2, 60_000);
  t.like(same, { status: "SUCCEEDED", output: "web v2.0.0 is up to date\n" });

  await addVersion(dir, port, { version: "3.0.0", files: { "server.mjs": "process.exit(7);" } });
  await schedules.runSchedule({ id: "u" });
  const [failed] = await endedRuns(schedules, "u", 3, 60_000);
  t.is(failed?.status, "FAILED");
  t.regex(failed?.error ?? "", /^app "web" did not start: .* exited with code 7/);
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", version: "v2.0.0" });
  await apps.removeApp({ id: "web" });
});

test("a removed app's jobs are named and disabled, and a later app with its ID does not get them", async (t) => {
  const daemon = await emptyDaemon();
  const [schedules, apps] = [daemon.client(ScheduleService), daemon.client(AppService)];
  const url = await writeRepository(join(daemon.dir, "repository"), await freePort(), [{ version: "1.0.0" }]);
  await apps.installApp({ spec: url });
  for (const id of ["first", "second"]) {
    await schedules.upsertSchedule({ id, trigger: yearly, action: { type: "app_start", app: "web" } });
  }
  await schedules.upsertSchedule({
    id: "other",
    trigger: yearly,
    action: { type: "shell", command: "true" },
  });
  await schedules.upsertSchedule({
    id: "off",
    trigger: yearly,
    enabled: false,
    action: { type: "app_start", app: "web" },
  });
  t.deepEqual((await apps.removeApp({ id: "web" })).disabledSchedules, ["first", "second"]);
  await apps.installApp({ spec: url });
  const { schedules: jobs } = await schedules.listSchedules({});
  t.deepEqual(
    jobs.map(({ id, enabled }) => [id, enabled]),
    [
      ["first", false],
      ["off", false],
      ["other", true],
      ["second", false],
    ],
  );
  const [first] = jobs;
  t.regex(first?.disabledReason ?? "", /^the app web was removed; .*svc schedule enable first$/);
  for (const id of ["first", "off"])
    t.like(await errorOf(schedules.runSchedule({ id })), { reason: "not_possible" }, id);
  // A user who writes it means today's app.
  const action = { type: "app_start", app: "web" };
  const replacement = await schedules.upsertSchedule({ id: "first", trigger: yearly, action });
  t.like(replacement, { enabled: true, disabledReason: "" });
  await schedules.runSchedule({ id: "first" });
  await endedRuns(schedules, "first", 1);
  await apps.stopApp({ id: "web" });
  await apps.removeApp({ id: "web" });
});

rootTest(`jobs fire without a network${needsRoot}`, async (t) => {
  // A new network namespace has only a loopback interface, which is down.
  const launcher = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"];
  await using daemon = await startDaemon({ launcher });
  const schedules = daemon.client(ScheduleService);
  const command = "tail -n +3 /proc/net/dev | cut -d: -f1";
  await schedules.upsertSchedule({ id: "j", trigger: "* * * * *", action: { type: "shell", command } });
  const [run] = await endedRuns(schedules, "j", 1, 75_000);
  t.like(run, { trigger: "schedule", status: "SUCCEEDED" });
  t.is(run?.output.trim(), "lo");
  const lateMs = Number(run?.startedAt?.seconds) - Number(run?.scheduledAt?.seconds);
  t.true(lateMs < 10, `${lateMs} s after the start of its minute`);
});

/** Starts a long run with a process that left its group and session. */
async function runLong(daemon: TestDaemon) {
  const schedules = daemon.client(ScheduleService);
  const [own, stray] = [join(daemon.dir, "own"), join(daemon.dir, "stray")];
  const command = `echo begun; echo $$ > ${own}; (setsid sh -c '(sleep 300 & echo $! > ${stray}) &' &); sleep 300`;
  await schedules.upsertSchedule({ id: "long", trigger: yearly, action: { type: "shell", command } });
  await schedules.runSchedule({ id: "long" });
  const pids = await eventually(async () => {
    const found = await Promise.all([own, stray].map(async (file) => Number(await readFile(file, "utf8"))));
    assert.ok(found.every((pid) => pid > 1));
    return found;
  });
  return { pids, schedules };
}

// The main workflow on a real daemon, the same over every protocol: install, start, logs, settings, upgrade,
// clone, remove.

for (const protocol of protocols) {
  test(`the main workflow over ${protocol}`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const port = await freePort();
    const repository = join(daemon.dir, "web.git");
    const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
    const ask = async (path = "/"): Promise<{ version: string; greeting: string }> =>
      (await (await fetch(`http://127.0.0.1:${port}${path}`)).json()) as {
        version: string;
        greeting: string;
      };

    const installed = await apps.installApp({ spec });
    t.like(installed, { id: "web", state: "STOPPED", version: "v1.0.0", runtime: "process", enabled: false });
    t.like(installed.origin, { kind: "git", url: spec, tag: "v1.0.0" });
    t.deepEqual(
      installed.ports.map(({ name, port: number, protocol: of }) => [name, number, of]),
      [["http", port, "tcp"]],
    );
    t.true(existsSync(join(daemon.storeDir, "apps", "web", "repo", "svc.yaml")));

    const started = await apps.startApp({ id: "web" });
    t.like(started, { state: "RUNNING", enabled: true });
    t.like(await eventually(() => ask()), { version: "1.0.0", greeting: "hello" });
    t.is((await apps.startApp({ id: "web" })).state, "RUNNING", "starting a running app changes nothing");

    const logs = await eventually(async () => {
      const answer = await apps.getAppLogs({ id: "web", tail: 10, timestamps: true });
      assert.equal(answer.lines.length, 2);
      return answer;
    });
    t.true(logs.lines.every((line) => line.time !== undefined));
    t.deepEqual(logs.lines.map(({ stream, text }) => [stream, text]).toSorted(), [
      ["stderr", "a line on stderr"],
      ["stdout", `listening on ${port} with greeting hello`],
    ]);

    const before = await apps.getAppSettings({ id: "web" });
    t.deepEqual(before.values, { port, greeting: "hello" });
    const schema = before.schema === undefined ? undefined : toJson(ValueSchema, before.schema);
    t.like(schema, {
      type: "object",
      additionalProperties: false,
      properties: {
        greeting: { type: "string", maxLength: 40, default: "hello" },
        password: { writeOnly: true },
      },
    });
    const written = await apps.updateAppSettings({
      id: "web",
      values: { greeting: "moin", password: "hush" },
    });
    t.deepEqual(written.values, { port, greeting: "moin", password: "***" });
    t.true(written.restartRequired);
    const refused = await errorOf(
      apps.updateAppSettings({ id: "web", values: { greeting: 7, colour: "red" } }),
    );
    t.like(refused, { code: "InvalidArgument", reason: "invalid_request" });
    t.deepEqual(
      refused.payload.case === "invalidRequest"
        ? refused.payload.value.violations.map((v) => v.field).toSorted()
        : [],
      ["values.colour", "values.greeting"],
    );
    t.is((await apps.restartApp({ id: "web" })).restartRequired, false);
    t.like(await eventually(() => ask()), { greeting: "moin" });

    await addVersion(repository, port, { version: "1.1.0" });
    t.like(await errorOf(apps.upgradeApp({ id: "web" })), {
      code: "FailedPrecondition",
      reason: "app_running",
    });
    t.is((await apps.stopApp({ id: "web" })).state, "STOPPED");
    await t.throwsAsync(ask(), undefined, "nothing responds after a stop");
    t.like(await apps.upgradeApp({ id: "web" }), { upToDate: false, from: "v1.0.0", to: "v1.1.0" });
    t.like(await apps.upgradeApp({ id: "web" }), { upToDate: true, from: "v1.1.0", to: "v1.1.0" });
    await apps.startApp({ id: "web" });
    t.like(await eventually(() => ask()), { version: "1.1.0", greeting: "moin" });

    const clone = await apps.cloneApp({ id: "web" });
    t.like(clone, { id: "web-2", name: "web-2", sourceRunning: true });
    t.true(clone.copiedBytes > 0n);
    t.is((await apps.getApp({ id: "web-2" })).state, "STOPPED");

    const disk = await apps.getAppDisk({ id: "web" });
    t.true(disk.repositoryBytes > 0n && disk.totalBytes >= disk.repositoryBytes + disk.dataBytes);
    t.deepEqual((await apps.getDiskReport({})).apps.map(({ id }) => id).toSorted(), ["web", "web-2"]);
    t.deepEqual(
      (await apps.getPortReport({})).apps.map(({ id }) => id),
      ["web", "web-2"],
    );
    const { stats } = await apps.getAppStats({});
    t.deepEqual(
      stats.map(({ id }) => id),
      ["web"],
      "only running apps are sampled",
    );
    t.true((stats[0]?.memoryBytes ?? 0n) > 1_000_000n);
    t.true(stats[0]?.diskReadBytes !== undefined && stats[0].networkSentBytes === undefined);
    t.like((await daemon.client(DaemonService, protocol).getStatus({})).apps, {
      total: 2,
      running: 1,
      stopped: 1,
    });

    t.like(
      await errorOf(apps.updateAppSettings({ id: "web" })),
      { reason: "invalid_request" },
      "values are required",
    );
    t.true((await apps.removeApp({ id: "web" })).freedBytes > 0n);
    await t.throwsAsync(ask(), undefined, "removal stops the app first");
    t.false(existsSync(join(daemon.storeDir, "apps", "web")));
    t.false(existsSync(join(daemon.storeDir, "run", "web")));
    t.like(await errorOf(apps.getApp({ id: "web" })), { code: "NotFound", reason: "not_found" });
    t.deepEqual(
      (await apps.listApps({})).apps.map(({ id }) => id),
      ["web-2"],
    );
    await apps.removeApp({ id: "web-2" });
  });
}
