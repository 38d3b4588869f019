/** Events of a real daemon, and the streaming variants of methods. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { request } from "node:http";
import { join } from "node:path";
import { promisify } from "node:util";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { type Event, EventService } from "../../../gen/svc/v1/event_pb.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { type Protocol, type TestDaemon, isRoot, needsRoot, startDaemon } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { addVersion, freePort, writeFiles, writePackage, writeRepository } from "../../support/packages.ts";
import { main } from "../../support/svc-main.ts";
import { runSvc } from "../../cli/support/run-svc.ts";

// Events of a real daemon: their content, their audience, and resuming a stream.

const deadlineMs = 60_000;
const rootTest = isRoot ? test : test.skip;
const run = promisify(execFile);

/** The stored events, as the caller of `client` sees them. */
async function held(daemon: Pick<TestDaemon, "client">, request: object = {}, protocol: Protocol = "grpc") {
  const events = daemon
    .client(EventService, protocol)
    .streamEvents({ past: true, untilNow: true, ...request });
  return (await Array.fromAsync(events)).filter(({ kind }) => kind !== "begin");
}

const short = ({ kind, appId, subject, state }: Event): string =>
  [kind, appId, subject, state].filter((part) => part !== "").join(" ");

/** Follows until `isEnough`. */
async function followed(daemon: TestDaemon, isEnough: (eventLines: readonly string[]) => boolean) {
  const leave = AbortSignal.timeout(deadlineMs);
  const eventLines: string[] = [];
  const events = daemon.client(EventService, "grpc").streamEvents({}, { signal: leave });
  for await (const event of events) {
    if (event.kind !== "begin") eventLines.push(short(event));
    if (isEnough(eventLines)) break;
  }
  return eventLines;
}

test("an app's events are streamed live and stored", async (t) => {
  await using daemon = await startDaemon();
  const dir = join(daemon.dir, "web");
  const port = await freePort();
  await writePackage(dir, port, { manifest: "restart: { policy: never }" });
  const apps = daemon.client(AppService);
  const following = followed(daemon, (eventLines) =>
    eventLines.some((line) => line.startsWith("app.crashed")),
  );
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${port}/`), deadlineMs);
  await fetch(`http://127.0.0.1:${port}/exit`).catch(() => undefined);
  const eventLines = await following;
  await apps.updateAppSettings({ id: "web", values: { greeting: "hi" } });
  await daemon.client(BackupService).createBackup({ appId: "web", storages: ["local"] });
  await apps.removeApp({ id: "web" });
  await eventually(async () => {
    const kinds = (await held(daemon)).map(({ kind }) => kind);
    assert.equal(
      kinds.filter((kind) => kind === "operation.ended").at(-1) && kinds.includes("app.removed"),
      true,
    );
  }, deadlineMs);

  const events = await held(daemon);
  // The follower may connect after the install has started.
  const isSeen = (line: string): boolean => !line.startsWith("operation.started ");
  const lines = events.map(short).filter(isSeen);
  t.deepEqual(eventLines.filter((line) => line.startsWith("app.")).at(-1), "app.crashed web CRASHED");
  const seen = eventLines.filter(isSeen);
  t.deepEqual(lines.slice(0, seen.length), seen, "stored events equal the streamed ones");
  for (const line of [
    "app.installed web STOPPED",
    "operation.began web start",
    "operation.ended web start",
    "operation.changed web remove",
    "app.running web RUNNING",
    "backup.made web local",
    "app.removed web",
  ])
    t.true(lines.includes(line), `${line} in ${lines.join("\n")}`);
  const at = (line: string): number => lines.indexOf(line);
  t.true(at("app.installed web STOPPED") < at("app.running web RUNNING"));
  t.true(at("app.crashed web CRASHED") < at("app.removed web"));
  t.regex(events.find(({ kind }) => kind === "app.crashed")?.message ?? "", /exit code 3|code 3/);
  t.true(lines.slice(at("app.crashed web CRASHED")).some((line) => line.startsWith("app.changed web")));

  // A later stream resumes after the last event; one of another daemon does not know the cursor.
  const cursor = events.at(-3)?.cursor ?? "";
  t.deepEqual((await held(daemon, { past: false, after: cursor })).map(short), lines.slice(-2));
  t.deepEqual((await held(daemon, { kinds: ["backup", "app.crashed"], appId: "web" })).map(short), [
    "app.crashed web CRASHED",
    "backup.made web local",
  ]);
  await daemon.restart();
  t.deepEqual((await held(daemon, { past: false, after: cursor })).map(short), ["reset"]);
  t.like(await errorOf(held(daemon, { past: true, after: cursor })), { code: "InvalidArgument" });
  t.like(await errorOf(held(daemon, { kinds: ["App!"] })), { code: "InvalidArgument" });
});

test("svc events prints the start and the end of operations, and with --verbose their steps", async (t) => {
  await using daemon = await startDaemon();
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  await apps.stopApp({ id: "web" });
  await assert.rejects(apps.installApp({ spec: join(daemon.dir, "nowhere") }));
  const kindsOf = async (...args: string[]): Promise<string[]> => {
    const { stdout } = await runSvc(["events", ...args, "--socket", daemon.socketPath]);
    return stdout
      .trim()
      .split("\n")
      .map((line) => line.split(/ {2,}/).slice(1, 2).join(""));
  };
  const operation = ["operation.began", "operation.ended"];
  const expected = [
    ...[...operation, "app.installed", "app.stopped"],
    ...[...operation, "app.running"],
    ...[...operation, "app.stopped"],
    // The install that failed.
    "operation.finished",
  ];
  await eventually(async () => {
    const kinds = await kindsOf();
    assert.deepEqual(
      kinds.filter((kind) => kind !== "app.healthy"),
      expected,
    );
  }, deadlineMs);
  for (const all of [await kindsOf("--verbose"), await kindsOf("web", "--verbose")])
    for (const kind of ["app.busy", "app.starting", "operation.changed"]) t.true(all.includes(kind), kind);
  const unknown = await runSvc(["events", "nope", "--socket", daemon.socketPath]);
  t.like(unknown, { exitCode: 3, stdout: "" });
  t.regex(unknown.stderr, /no app "nope"/);
  t.deepEqual(new Set(await kindsOf("--kind", "app.starting")), new Set(["app.starting"]));
  const none = await runSvc(["events", "--kind", "app.crashed", "--socket", daemon.socketPath]);
  t.like(none, {
    exitCode: 0,
    stdout: "",
    stderr: "No such events yet; the daemon stores those of the last hour.\n",
  });
  const json = await runSvc(["events", "--json", "--socket", daemon.socketPath]);
  t.regex(json.stdout, /"app\.starting"/);
});

test("REST streams events line by line, and the CLI prints them", async (t) => {
  await using daemon = await startDaemon();
  await daemon.client(ScheduleService).upsertSchedule({
    id: "echo",
    trigger: "0 0 1 1 *",
    action: { type: "shell", command: "exit 4" },
  });
  await daemon.client(ScheduleService).runSchedule({ id: "echo" });
  const expected = ["run.began echo RUNNING", "run.ended echo FAILED"];
  await eventually(async () => assert.deepEqual((await held(daemon)).map(short), expected), deadlineMs);
  const body = await get(daemon.socketPath, "/v1/events?past=true&until_now=true");
  const lines = body
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { kind: string; subject: string; time: string });
  t.deepEqual(
    lines.map(({ kind, subject }) => [kind, subject]),
    [
      ["begin", ""],
      ["run.began", "echo"],
      ["run.ended", "echo"],
    ],
  );
  const svc = (...args: string[]) =>
    run(process.execPath, [main, ...args, "--socket", daemon.socketPath], {
      env: { ...process.env, NO_COLOR: "1" },
    });
  const { stdout } = await svc("events");
  t.regex(stdout, /run\.began +echo +RUNNING\n.*run\.ended +echo +FAILED/);
  t.is((await svc("events", "--since", "1h")).stdout, stdout);
  t.is((await svc("events", "--since", "2999-01-01")).stdout, "");
  const lastMs = new Date(lines.at(-1)?.time ?? "").toISOString();
  t.regex((await svc("events", "--since", lastMs)).stdout, /run\.ended +echo/);
  const { stdout: json } = await svc("events", "--json", "--kind", "run.ended");
  t.like(JSON.parse(json.trim().split("\n").at(-1) ?? ""), {
    kind: "run.ended",
    subject: "echo",
    state: "FAILED",
  });
});

rootTest(`users receive their own events, and root receives all${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await using one = await daemon.as(2);
  await using other = await daemon.as(5);
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  await one.client(AppService).installApp({ spec: dir });
  await eventually(async () => {
    const kinds = (await held(daemon)).map(({ kind }) => kind);
    assert.ok(kinds.includes("app.installed"));
  }, deadlineMs);
  const all = (await held(daemon)).map(short);
  t.deepEqual((await held(one)).map(short), all);
  t.deepEqual(await held(other), []);
  t.deepEqual(await held(other, { appId: "web" }), []);
  t.is((await held(one)).at(-1)?.owner, 2);
});

rootTest(`a job is triggered by an event that its owner may see${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await using other = await daemon.as(5);
  const dir = join(daemon.dir, "web");
  const port = await freePort();
  await writePackage(dir, port, { manifest: "restart: { policy: never }" });
  const job = (trigger: string) => ({ trigger, action: { type: "app_start", app: "web" } });
  const noted = { type: "shell", command: "exit 0" };
  const root = daemon.client(ScheduleService);
  await daemon.client(AppService).installApp({ spec: dir });
  await root.upsertSchedule({ id: "again", ...job("on:app.crashed web") });
  await root.upsertSchedule({ id: "another", ...job("on:app.crashed hello") });
  await root.upsertSchedule({ id: "off", ...job("on:app.crashed"), enabled: false });
  await root.upsertSchedule({ id: "any", trigger: "on:app.crashed", action: noted });
  await other.client(AppService).installApp({ spec: dir, name: "own" });
  const apps = await other.client(AppService).listApps({});
  await other.client(ScheduleService).upsertSchedule({
    id: "spy",
    trigger: "on:app.crashed",
    action: { type: "app_start", app: apps.apps[0]?.id ?? "" },
  });
  await daemon.client(AppService).startApp({ id: "web" });
  await eventually(() => fetch(`http://127.0.0.1:${port}/`), deadlineMs);
  await fetch(`http://127.0.0.1:${port}/exit`).catch(() => undefined);
  const runs = async (id: string) => (await root.listScheduleRuns({ id })).runs.map(({ status }) => status);
  await eventually(async () => assert.deepEqual(await runs("again"), ["SUCCEEDED"]), deadlineMs);
  await eventually(async () => assert.deepEqual(await runs("any"), ["SUCCEEDED"]), deadlineMs);
  t.is((await daemon.client(AppService).getApp({ id: "web" })).state, "RUNNING");
  t.deepEqual([await runs("another"), await runs("off")], [[], []]);
  t.deepEqual((await other.client(ScheduleService).listScheduleRuns({ id: "spy" })).runs, []);
  t.is((await root.getSchedule({ id: "again" })).nextRunUnix, undefined);
  for (const trigger of ["on:run.ended", "on:app", "on:app.crashed a b", "on:"]) {
    t.like(
      await errorOf(root.upsertSchedule({ id: "bad", ...job(trigger) })),
      { code: "InvalidArgument" },
      trigger,
    );
  }
  t.like(await errorOf(root.upsertSchedule({ id: "bad", ...job("on:app.crashed"), catchUp: "latest" })), {
    code: "InvalidArgument",
  });
});

test("a failed backup is an event with its reason, and triggers the jobs that wait for it", async (t) => {
  await using daemon = await startDaemon();
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort());
  await daemon.client(AppService).installApp({ spec: dir });
  const backups = daemon.client(BackupService);
  // A file instead of a directory.
  const location = { case: "local", value: { dir: daemon.configFile } } as const;
  await backups.upsertBackupStorage({ name: "broken", location });
  const schedules = daemon.client(ScheduleService);
  const triggers = { failed: "on:backup.failed web", any: "on:backup.failed", made: "on:backup.made web" };
  for (const [id, trigger] of Object.entries({ ...triggers, anothers: "on:backup.failed hello" }))
    await schedules.upsertSchedule({ id, trigger, action: { type: "shell", command: "exit 0" } });
  const { results } = await backups.createBackup({ appId: "web", storages: ["broken", "local"] });
  const runs = async (id: string) =>
    (await schedules.listScheduleRuns({ id })).runs.map(({ status }) => status);
  for (const id of Object.keys(triggers))
    await eventually(async () => assert.deepEqual(await runs(id), ["SUCCEEDED"], id), deadlineMs);
  t.deepEqual(await runs("anothers"), []);
  const eventLines = await held(daemon, { kinds: ["backup"] });
  t.deepEqual(eventLines.map(short).toSorted(), ["backup.failed web broken", "backup.made web local"]);
  t.is(eventLines.find(({ kind }) => kind === "backup.failed")?.message, results[0]?.error);
  t.not(results[0]?.error, "");
});

async function get(socketPath: string, path: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  request({ socketPath, path, headers: { host: "localhost" } }, (response) => {
    let body = "";
    response.on("data", (chunk: Buffer) => (body += chunk.toString()));
    response.on("end", () => resolve(body));
  })
    .on("error", reject)
    .end();
  return promise;
}

// The streaming variants: progress with a result at the end, followed logs, statistics.

const emptyDaemon = sharedDaemon();

const streaming = ["connect", "grpc", "grpc-web"] as const;

for (const protocol of streaming) {
  test(`install, upgrade and clone report progress and end with their result (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const port = await freePort();
    const build = "  build:\n    - exec: [sh, -c, 'echo one; echo two']\n";
    const repository = join(daemon.dir, "web.git");
    const options = (version: string) => ({
      version,
      manifest: "",
      files: {
        "svc.yaml": `id: web\nname: Web\nversion: "${version}"\nprocess:\n  exec: [node, server.mjs]\n${build}`,
      },
    });
    const spec = await writeRepository(repository, port, [options("1.0.0")]);

    const installs = await Array.fromAsync(apps.installAppStream({ spec }));
    const last = installs.at(-1)?.event;
    t.true(last?.case === "app" && last.value.state === "STOPPED");
    const lines = installs.flatMap(({ event }) =>
      event.case === "progress" && event.value.step === "build" ? [event.value.message] : [],
    );
    t.deepEqual(lines.slice(1), ["one", "two"]);

    await addVersion(repository, port, options("1.1.0"));
    const upgrades = await Array.fromAsync(apps.upgradeAppStream({ id: "web" }));
    const upgraded = upgrades.at(-1)?.event;
    t.true(upgraded?.case === "result" && upgraded.value.to === "v1.1.0");

    const clones = await Array.fromAsync(apps.cloneAppStream({ id: "web" }));
    const copied = clones.map(({ event }) => (event.case === "progress" ? event.value.message : ""));
    t.true(copied.includes("Copying the package"), copied.join());
    const cloned = clones.at(-1)?.event;
    t.true(cloned?.case === "result" && cloned.value.id === "web-2");
    t.true(clones.some(({ event }) => event.case === "progress" && event.value.step === "copy"));

    t.like(await errorOf(apps.cloneAppStream({ id: "nothing" })), { code: "NotFound" });
  });

  test(`a followed log starts with its tail and continues across a restart (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort(), {
      files: {
        "server.mjs": `let n = 0; setInterval(() => console.log("line " + ++n + " of " + process.pid), 50);`,
      },
    });
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    await eventually(async () => assert.ok((await apps.getAppLogs({ id: "web" })).lines.length > 5));
    const stop = new AbortController();
    const pids = new Set<string>();
    let lines = 0;
    const followed = (async () => {
      for await (const chunk of apps.streamAppLogs({ id: "web", tail: 3 }, { signal: stop.signal })) {
        for (const { text, stream } of chunk.lines) {
          if (stream !== "stdout") continue;
          lines++;
          pids.add(text.split(" of ")[1] ?? "");
        }
      }
    })();
    await eventually(() => assert.ok(lines > 10));
    await apps.restartApp({ id: "web" });
    await eventually(() => assert.equal(pids.size, 2), 20_000);
    stop.abort();
    await t.throwsAsync(followed);
    await apps.removeApp({ id: "web" });
  });

  test(`statistics are pushed until the client disconnects (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const dir = join(daemon.dir, "package");
    await writePackage(dir, await freePort());
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    const sampledMs: number[] = [];
    for await (const { stats } of apps.streamAppStats({ minIntervalSecs: 0 })) {
      t.deepEqual(
        stats.map(({ id }) => id),
        ["web"],
      );
      const sampledAt = stats[0]?.sampledAt;
      sampledMs.push(sampledAt === undefined ? 0 : timestampMs(sampledAt));
      if (sampledMs.length === 3) break;
    }
    // The server's minimum interval is one second; without it, a frame would follow each window of 500 ms.
    t.true((sampledMs[2] ?? 0) - (sampledMs[0] ?? 0) > 1_400);
    await apps.removeApp({ id: "web" });
  });
}

/** An app with an operation in progress until it is canceled; `begin` starts it. */
interface Canceled {
  readonly manifest: string;
  readonly isThereBefore: boolean;
  readonly begin: (daemon: TestDaemon, spec: string) => Promise<unknown>;
}

const forever = 'exec: [sleep, "3600"]';
const canceled: Readonly<Record<string, Canceled>> = {
  install: {
    manifest: `process: { exec: [node, server.mjs], build: [{ ${forever} }] }`,
    isThereBefore: false,
    begin: (daemon, spec) => daemon.client(AppService).installApp({ spec }),
  },
  upgrade: {
    manifest: `process: { exec: [node, server.mjs] }\nmigrate: { ${forever} }`,
    isThereBefore: true,
    begin: (daemon) => daemon.client(AppService).upgradeApp({ id: "web" }),
  },
  backup: {
    manifest: `process: { exec: [node, server.mjs] }\nbackup: { dump: { ${forever} } }`,
    isThereBefore: true,
    begin: (daemon) => daemon.client(BackupService).createBackup({ appId: "web" }),
  },
};

for (const [kind, { manifest, isThereBefore, begin }] of Object.entries(canceled)) {
  test(`an operation that another caller cancels ends and is rolled back (${kind})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const spec = join(daemon.dir, "package");
    await writeFiles(spec, {
      "svc.yaml": `id: web\nname: Web\nversion: "1.0.0"\n${manifest}\n`,
      "server.mjs": "",
    });
    if (isThereBefore) await apps.installApp({ spec });
    const begun = errorOf(begin(daemon, spec));
    await eventually(async () =>
      assert.deepEqual(
        (await apps.listApps({})).apps.map(({ operation }) => [operation?.kind, operation?.cancelable]),
        [[kind, true]],
      ),
    );
    const { operation } = await apps.cancelAppOperation({ id: "web" });
    t.is(operation?.kind, kind, "the app is unchanged");
    t.like(await begun, { reason: "canceled" });
    const left = (await apps.listApps({})).apps;
    t.deepEqual(
      left.map(({ state, version, operation: other }) => ({ state, version, other })),
      isThereBefore ? [{ state: "STOPPED", version: "1.0.0", other: undefined }] : [],
    );
    const again = errorOf(apps.cancelAppOperation({ id: "web" }));
    t.like(await again, { reason: isThereBefore ? "not_possible" : "not_found" });
  });
}
