/** Starts that wait for health, failing starts, crashing apps, concurrent operations, and disconnected clients. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import type { JsonObject } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService, type AppLogs } from "../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { protocolOf, protocols, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

// Failing starts, crashing apps, concurrent operations, and disconnected clients.

const emptyDaemon = sharedDaemon();

const failing = `console.log("no luck today"); process.exit(9);`;

test("a failed start shows its reason", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: { "server.mjs": failing },
    manifest: "restart: { policy: never }\n",
  });
  await apps.installApp({ spec: dir });
  const error = await errorOf(apps.startApp({ id: "web" }));
  t.like(error, { code: "FailedPrecondition", reason: "start_failed" });
  const payload = error.payload.case === "commandFailed" ? error.payload.value : undefined;
  t.is(payload?.exitCode, 9);
  t.true(payload?.lastLines.includes("no luck today"));
  const app = await apps.getApp({ id: "web" });
  t.like(app, { state: "FAILED", exitCode: 9, enabled: true });
  t.is(`app "web" did not start: ${app.stateReason}`, error.message);
  t.true(app.lastLines.includes("no luck today"));
  t.is((await apps.stopApp({ id: "web" })).state, "STOPPED", "a stop clears the failure");
  await apps.removeApp({ id: "web" });
});

test("manifests and settings of packages are parsed in one thread", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await apps.installApp({ spec: dir });
  const threads = await readdir(`/proc/${daemon.pid}/task`);
  const names = threads.map((id) => readFile(`/proc/${daemon.pid}/task/${id}/comm`, "utf8").catch(() => ""));
  const unnamed = (await Promise.all(names)).filter((name) => name === "WorkerThread\n");
  t.is(unnamed.length, 1);
  await apps.removeApp({ id: "web" });
});

test("a restart whose start fails leaves a failed app with its reason", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  const settings = `settings: { properties: { motto: { type: string, default: "", file: { path: motto } } } }`;
  const process = `process: { exec: [node, -e, "setInterval(() => {}, 1000)"] }`;
  await mkdir(dir);
  await writeFile(join(dir, "svc.yaml"), `id: web\nname: Web\nversion: "1.0.0"\n${process}\n${settings}\n`);
  const { directory } = await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  // A directory replaces a file that svc writes.
  const motto = join(directory, "data", "motto");
  await rm(motto);
  await mkdir(join(motto, "full"), { recursive: true });
  const error = await errorOf(apps.restartApp({ id: "web" }));
  t.not(error.reason, "start_failed", "no start was attempted");
  const failed = { state: "FAILED", stateReason: error.message, enabled: true };
  t.like(await apps.getApp({ id: "web" }), failed);
  // The runtime reports that nothing runs a moment after the operation.
  await setTimeout(200);
  t.like(await apps.getApp({ id: "web" }), failed);
  await rm(motto, { recursive: true });
  t.like(await apps.restartApp({ id: "web" }), { state: "RUNNING", stateReason: "" });
  await apps.removeApp({ id: "web" });
});

test("an app that exits by itself is restarted, and fails when the retries are exhausted", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: { "server.mjs": `console.log("one more life"); setTimeout(() => process.exit(1), 1_200);` },
    manifest: "restart: { policy: always, delay: 50ms, max_delay: 100ms, max_attempts: 2 }\n",
  });
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const crashed = await eventually(async () => {
    const app = await apps.getApp({ id: "web" });
    assert.equal(app.state, "CRASHED");
    return app;
  }, 20_000);
  t.like(crashed, { restarts: 2, exitCode: 1 });
  t.true(crashed.lastLines.includes("one more life"));
  await apps.removeApp({ id: "web" });
});

test("health is shown once its check has passed, and when it fails later", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: {
      "server.mjs": `
        import { createServer } from "node:http";
        let status = 200;
        createServer((request, response) => {
          if (request.url === "/sicken") status = 500;
          response.writeHead(status).end();
        }).listen(Number(process.env.PORT), "127.0.0.1");`,
    },
    manifest:
      "health: { http: { port: http, path: / }, interval: 200ms, timeout: 1s, retries: 2, start_period: 1s }\n",
  });
  const { ports } = await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const health = async (expected: string): Promise<void> => {
    await eventually(async () => assert.equal((await apps.getApp({ id: "web" })).health, expected));
  };
  await health("healthy");
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", status: "RUNNING" });
  await fetch(`http://127.0.0.1:${ports[0]?.port ?? 0}/sicken`);
  await health("unhealthy");
  t.like(await apps.getApp({ id: "web" }), { state: "RUNNING", status: "UNHEALTHY" });
  t.like((await daemon.client(DaemonService).getStatus({})).apps, { running: 1, unhealthy: 1 });
  const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
  t.regex((await svc("ls")).stdout, /^web .* UNHEALTHY /m);
  t.regex((await svc("status")).stdout, /^Apps: +1 installed, 1 unhealthy$/m);
  t.is((await svc("ls", "--state", "running", "--quiet")).stdout.trim(), "");
  t.is((await svc("ls", "--state", "unhealthy", "--quiet")).stdout, "web\n");
  const events = ["events", "--kind", "app.unhealthy"];
  t.regex((await svc(...events)).stdout, / app\.unhealthy +web +UNHEALTHY +GET \/ returned status 500\n$/);
  const lines = (await svc(...events, "--json")).stdout.trim().split("\n");
  t.like(JSON.parse(lines.at(-1) ?? ""), { app_id: "web", state: "RUNNING", status: "UNHEALTHY" });
  await apps.stopApp({ id: "web" });
  await health("none");
  t.is((await apps.getApp({ id: "web" })).status, "STOPPED");
});

const slow = (gate: string): string => `id: slow
name: Slow
version: "1"
process:
  exec: [node, server.mjs]
  build: [{ exec: [sh, -c, "until test -e ${gate}; do sleep 0.05; done"] }]
`;

test("an app that is being installed is busy, and a client that disconnects cancels the install", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: { "svc.yaml": slow(join(daemon.dir, "gate")), "server.mjs": "" },
  });
  for (const protocol of protocols) {
    const client = new AbortController();
    const install = daemon.client(AppService, protocol).installApp({ spec: dir }, { signal: client.signal });
    install.catch(() => undefined);
    await eventually(async () => assert.equal((await apps.getApp({ id: "slow" })).state, "INSTALLING"));
    for (const call of [apps.startApp, apps.removeApp, apps.cloneApp, apps.upgradeApp]) {
      t.like(await errorOf(call({ id: "slow" })), { code: "FailedPrecondition", reason: "app_busy" });
    }
    client.abort();
    await t.throwsAsync(install);
    await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []));
    t.deepEqual(await readdir(join(daemon.storeDir, "apps")), [], protocol);
    t.deepEqual(await readdir(join(daemon.storeDir, "run")), [], protocol);
  }
});

test("a stop and a removal continue when their client disconnects", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    // Exits slowly.
    files: {
      "server.mjs": `process.on("SIGTERM", () => setTimeout(() => process.exit(0), 1_000)); setInterval(() => {}, 1e6);`,
    },
  });
  await apps.installApp({ spec: dir });
  for (const call of [apps.stopApp, apps.removeApp] as const) {
    await apps.startApp({ id: "web" });
    const client = new AbortController();
    const going = call({ id: "web" }, { signal: client.signal });
    going.catch(() => undefined);
    await eventually(async () => assert.notEqual((await apps.getApp({ id: "web" })).state, "RUNNING"));
    client.abort();
    await t.throwsAsync(going as Promise<unknown>);
    await eventually(async () => {
      const { apps: listed } = await apps.listApps({});
      assert.deepEqual(
        listed.map(({ state }) => state),
        call === apps.stopApp ? ["STOPPED"] : [],
      );
    });
  }
  t.deepEqual(await readdir(join(daemon.storeDir, "apps")), []);
});

test("each of many concurrent starts succeeds or finds the app busy, and one process runs", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: { "server.mjs": `console.log("pid " + process.pid); setInterval(() => {}, 1e6);` },
  });
  await apps.installApp({ spec: dir });
  const results = await Promise.allSettled(Array.from({ length: 10 }, () => apps.startApp({ id: "web" })));
  t.true(results.some(({ status }) => status === "fulfilled"));
  for (const result of results) {
    if (result.status === "rejected") {
      t.is((await errorOf(Promise.reject(result.reason as Error))).reason, "app_busy");
    }
  }
  await eventually(async () => {
    const { lines } = await apps.getAppLogs({ id: "web" });
    assert.equal(lines.filter(({ text }) => text.startsWith("pid ")).length, 1);
  });
  await apps.removeApp({ id: "web" });
});

test("a log continues after the cursor of an earlier response, also after the daemon restarted", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const dir = join(daemon.dir, "package");
  const counting = "let n = 0; setInterval(() => { for (let i = 0; i < 5; i++) console.log(n++); }, 50);";
  await writePackage(dir, await freePort(), { files: { "server.mjs": counting } });
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const numbers: number[] = [];
  let after = "";
  const take = ({ lines, cursor }: Pick<AppLogs, "lines" | "cursor">): void => {
    numbers.push(...lines.filter(({ stream }) => stream === "stdout").map(({ text }) => Number(text)));
    after = cursor;
  };
  const readMore = async (request: { tail?: number; after?: string }): Promise<void> => {
    const before = numbers.length;
    take(await apps.getAppLogs({ id: "web", ...request }));
    if (numbers.length === before) throw new Error("no new line");
  };
  await eventually(() => readMore({ tail: 3 }));
  await eventually(() => readMore({ after }));
  for await (const part of apps.streamAppLogs({ id: "web", after })) {
    take(part);
    if (numbers.length > 30) break;
  }
  await eventually(() => readMore({ after }));
  await daemon.restart();
  await eventually(() => readMore({ after }));
  const [first = 0] = numbers;
  t.deepEqual(
    numbers,
    numbers.map((_, at) => first + at),
  );
  for (const [request, message] of [
    [{ after: "yesterday" }, /^after must be the cursor of an earlier response, got "yesterday"$/],
    [{ after, since: timestampFromMs(0) }, /^since must be absent if after is set$/],
  ] as const)
    t.regex((await errorOf(apps.getAppLogs({ id: "web", ...request }))).message, message);
});

test("a restart is required while the app runs with other values, including defaults", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  const port = await freePort();
  await writePackage(dir, port);
  await apps.installApp({ spec: dir });
  const isRequiredWith = async (values: JsonObject): Promise<boolean> => {
    const { restartRequired } = await apps.updateAppSettings({ id: "web", values });
    t.is((await apps.getApp({ id: "web" })).restartRequired, restartRequired);
    return restartRequired;
  };
  t.false(await isRequiredWith({ greeting: "moin" }), "it does not run");
  await apps.startApp({ id: "web" });
  t.false(await isRequiredWith({ greeting: "moin", port }), "a default that is set explicitly");
  t.true(await isRequiredWith({ greeting: "servus" }));
  t.false(await isRequiredWith({ greeting: "moin" }), "the values that it runs with");
  t.true(await isRequiredWith({}));
  await daemon.restart();
  t.true((await apps.getApp({ id: "web" })).restartRequired, "the next daemon knows it");
  t.false((await apps.restartApp({ id: "web" })).restartRequired);
  t.false(await isRequiredWith({ greeting: "hello" }));
  await apps.removeApp({ id: "web" });
});

test("settings show the running values and the differences, and only whether a secret is set", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  const port = await freePort();
  await writePackage(dir, port);
  await apps.installApp({ spec: dir });
  const stopped = await apps.getAppSettings({ id: "web" });
  t.deepEqual(stopped.values, { port, greeting: "hello" }, "no secret is set");
  t.like(stopped, { running: undefined, changed: [], restartRequired: false });
  await apps.startApp({ id: "web" });
  const ofService = await errorOf(apps.getAppLogs({ id: "web", service: "db" }));
  t.like(ofService, { reason: "invalid_request", message: 'service: app "web" is not a compose project' });
  const values = { greeting: "moin", password: "hush" };
  const written = await apps.updateAppSettings({ id: "web", values });
  t.deepEqual(written.values, { port, greeting: "moin", password: "***" });
  t.deepEqual(written.running, { port, greeting: "hello" });
  t.deepEqual(written.changed.toSorted(), ["greeting", "password"]);
  t.true(written.restartRequired);
  await apps.restartApp({ id: "web" });
  const again = await apps.updateAppSettings({ id: "web", values: { ...values, password: "psst" } });
  t.deepEqual(again.changed, ["password"]);
  t.deepEqual(again.running, { port, greeting: "moin", password: "***" });
  t.false(
    JSON.stringify(again, (_, value: unknown) => (typeof value === "bigint" ? 0 : value)).includes("hush"),
  );
  const emptied = await apps.updateAppSettings({ id: "web", values: { password: "" } });
  t.is(emptied.values?.["password"], "", "an empty secret is not set");
  await apps.removeApp({ id: "web" });
});

test("a second install of a package says which ID it got", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  t.notRegex((await svc("install", dir)).stderr, /in use/);
  const { stderr } = await svc("install", dir);
  t.regex(
    stderr,
    / is already installed as web; to apply changes: svc upgrade web; this installs a second app/,
  );
  t.regex(stderr, /the ID "web" is in use; this app is "web-2"$/m);
  t.notRegex((await svc("install", dir, "--name", "other")).stderr, /the ID/);
  const apps = daemon.client(AppService);
  for (const id of ["web", "web-2", "other"]) await apps.removeApp({ id });
});

test("svc exec takes the service before or after the app", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]) => runSvc(["--socket", daemon.socketPath, ...args]);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  t.like(await svc("exec", "web", "echo", "--service"), { exitCode: 0, stdout: "--service\n" });
  const stderr = 'svc: service: app "web" is not a compose project\n';
  for (const line of [
    ["--service", "a", "web"],
    ["web", "--service", "a"],
    ["web", "--service=a", "--"],
  ])
    t.like(await svc("exec", ...line, "echo", "hi"), { exitCode: 2, stderr }, line.join(" "));
  t.regex((await svc("exec", "web", "--service", "a")).stderr, /missing argument <command>/);
  await apps.removeApp({ id: "web" });
});

test("an install converts typed settings by their types, as svc settings set does", async (t) => {
  const daemon = await emptyDaemon();
  const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
  const dir = join(daemon.dir, "package");
  const port = await freePort();
  await writePackage(dir, port, { settings: "more: { type: array, items: { type: string }, env: MORE }" });
  const texts = ["greeting=007", "password=true", `port=${port}`, 'more=["a"]'];
  const installed = await svc("install", dir, ...texts.flatMap((text) => ["--set", text]));
  t.is(installed.exitCode, 0, installed.stderr);
  const apps = daemon.client(AppService);
  const values = { greeting: "007", password: "***", port, more: ["a"] };
  t.deepEqual((await apps.getAppSettings({ id: "web" })).values, values);
  const set = await svc("settings", "set", "web", "greeting=2", 'more=["b"]');
  t.is(set.exitCode, 0, set.stderr);
  t.deepEqual((await apps.getAppSettings({ id: "web" })).values, { ...values, greeting: "2", more: ["b"] });
  await apps.removeApp({ id: "web" });
  const rejected = await svc("install", dir, "--set", "port=eighty");
  t.like(rejected, { exitCode: 2, stderr: 'svc: port must be a whole number, got "eighty"\n' });
});

test("an app whose start failed keeps its desired state, and is retried when the daemon starts", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  const lucky = `
import { existsSync } from "node:fs";
if (!existsSync(process.env.SVC_DATA_DIR + "/luck")) process.exit(9);
setInterval(() => undefined, 1000);`;
  await writePackage(dir, await freePort(), { files: { "server.mjs": lucky } });
  await apps.installApp({ spec: dir });
  await errorOf(apps.startApp({ id: "web" }));
  t.like(await apps.getApp({ id: "web" }), { state: "FAILED", enabled: true });
  await writeFile(join(daemon.storeDir, "apps", "web", "data", "luck"), "");
  await daemon.restart();
  await eventually(async () => {
    assert.equal((await apps.getApp({ id: "web" })).state, "RUNNING");
  }, 60_000);
  t.is((await apps.getApp({ id: "web" })).stateReason, "");
  await apps.removeApp({ id: "web" });
});

test("pages of apps follow each other", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  for (let n = 0; n < 5; n++) await daemon.client(AppService).installApp({ spec: dir });
  for (const protocol of protocols) {
    const apps = daemon.client(AppService, protocol);
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await apps.listApps({ limit: 2, pageToken });
      seen.push(...page.apps.map(({ id }) => id));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    t.deepEqual(seen, ["web", "web-2", "web-3", "web-4", "web-5"], protocol);
    t.is((await errorOf(apps.listApps({ pageToken: "!" }))).reason, "invalid_request", protocol);
    t.is((await errorOf(apps.listApps({ limit: 0 }))).reason, "invalid_request", protocol);
  }
});

// `start`, `restart` and `install --start` report that an app runs once it is healthy, and fail if it is not.

/** It is unhealthy until the file `ready` exists; on request, it exits instead of its second response. */
const server = `
import { existsSync } from "node:fs";
import { createServer } from "node:http";
let asked = 0;
createServer((request, response) => {
  if (process.env.GREETING === "crash" && ++asked === 4) process.exit(3);
  response.statusCode = existsSync(process.env.SVC_DATA_DIR + "/ready") ? 200 : 503;
  response.end();
}).listen(Number(process.env.PORT), "127.0.0.1", () => console.log("it listens"));
`;

function health(startPeriod: string): string {
  return `health: { http: { port: http, path: /healthz }, start_period: ${startPeriod}, interval: 1s, retries: 1 }
restart: { policy: always, delay: 600s, max_delay: 600s }`;
}

async function packageIn({ dir }: TestDaemon, id: string, startPeriod = "600s"): Promise<string> {
  const path = join(dir, id);
  const manifest = health(startPeriod);
  await writePackage(path, await freePort(), { id, manifest, files: { "server.mjs": server } });
  return path;
}

interface Run {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** @param during called when the command reports that it waits */
async function svc(
  { socketPath }: TestDaemon,
  args: readonly string[],
  during?: () => Promise<void>,
): Promise<Run> {
  const child = spawn(process.execPath, [main, ...args, "--socket", socketPath], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { out: "", err: "" };
  child.stdout.on("data", (chunk) => (said.out += String(chunk)));
  child.stderr.on("data", (chunk) => (said.err += String(chunk)));
  const closed = once(child, "close") as Promise<[number | null]>;
  if (during !== undefined) {
    await eventually(() => {
      if (!said.err.includes("Waiting for")) throw new Error(`it does not wait: ${said.err}`);
    });
    await during();
  }
  const [code] = await closed;
  return { code, ...said };
}

for (const [name, id, args] of [
  ["start", "late-a", ["app", "start", "late-a"]],
  ["restart", "late-b", ["app", "restart", "late-b"]],
  ["install --start", "late-c", ["install", "--start"]],
] as const) {
  test(`${name} prints what it waits for, and returns when the app is healthy`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService);
    const spec = await packageIn(daemon, id);
    const isInstall = name === "install --start";
    if (!isInstall) await apps.installApp({ spec });
    const ready = join(daemon.storeDir, "apps", id, "data", "ready");
    const run = await svc(daemon, isInstall ? [...args, spec] : args, () => writeFile(ready, ""));
    t.is(run.code, 0, run.err);
    const port = (await apps.getApp({ id })).ports[0]?.port ?? 0;
    t.regex(run.err, new RegExp(`start ${id}: Waiting for GET /healthz on port ${port}`));
    t.regex(run.out, isInstall ? /^Running late-c 1\.0\.0/ : /^late-. is RUNNING at http:/);
    t.is((await apps.getApp({ id })).health, "healthy");
    await apps.removeApp({ id });
  });
}

test("--no-wait returns at once", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await packageIn(daemon, "unasked") });
  const run = await svc(daemon, ["app", "start", "unasked", "--no-wait"]);
  t.like(run, { code: 0, err: "" });
  t.regex(run.out, /^unasked is STARTING at http:/);
  await apps.removeApp({ id: "unasked" });
});

test("an app that does not stay up fails the command, is shown as failed, and uses new settings at the next start", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const spec = await packageIn(daemon, "web");
  const installed = await svc(daemon, ["install", spec, "--start", "--set", "greeting=crash"]);
  t.is(installed.code, 5, installed.err);
  t.regex(installed.err, /\| it listens\n/, "its last lines");
  t.regex(installed.err, /app "web" did not come up: BACKOFF after \d+ restarts?: .*code 3/);
  const started = await svc(daemon, ["app", "restart", "web"]);
  t.is(started.code, 5, started.err);

  const [{ out: list }, { out: info }] = [
    await svc(daemon, ["ls"]),
    await svc(daemon, ["app", "info", "web"]),
  ];
  t.regex(list, /STARTING \(restart in \d+m/, "the countdown decreases");
  const waiting = await apps.getApp({ id: "web" });
  t.regex(waiting.endedReason ?? "", /^the program exited with code 3$/);
  t.true(waiting.stateReason.endsWith(`: ${waiting.endedReason}`));
  t.regex(info, /State: +STARTING \(restart in \d+m[^]*Reason: +BACKOFF after/);
  const upgraded = await svc(daemon, ["upgrade", "--all", "--no-restart"]);
  t.like(upgraded, { code: 0, out: "" });
  t.regex(upgraded.err, /^web: from \/.*, not checked; to install it again: svc upgrade web\n$/);

  await apps.updateAppSettings({ id: "web", values: { greeting: "well" } });
  await writeFile(join(daemon.storeDir, "apps", "web", "data", "ready"), "");
  const again = await svc(daemon, ["app", "start", "web"]);
  t.is(again.code, 0, again.err);
  t.like(await apps.getApp({ id: "web" }), {
    state: "RUNNING",
    health: "healthy",
    endedReason: undefined,
  });
  t.is((await apps.getAppSettings({ id: "web" })).running?.["greeting"], "well");
  await apps.removeApp({ id: "web" });
});

test("an app that becomes unhealthy fails the command, with the last error of its check", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await packageIn(daemon, "ill", "1s") });
  const run = await svc(daemon, ["app", "start", "ill"]);
  t.is(run.code, 5, run.err);
  t.regex(
    run.err,
    /app "ill" did not come up: the health check fails: GET \/healthz returned status 503; see what/,
  );
  const { out } = await svc(daemon, ["app", "info", "ill"]);
  t.regex(out, /State: +UNHEALTHY\n[^]*Health: +unhealthy: GET \/healthz returned status 503\n/);
  await apps.removeApp({ id: "ill" });
});

test("an app that was killed and restarted shows its number of restarts", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const path = join(daemon.dir, "again");
  const manifest = "restart: { policy: always, delay: 100ms }";
  await writePackage(path, await freePort(), { id: "again", manifest });
  await apps.installApp({ spec: path });
  t.is((await svc(daemon, ["app", "start", "again"])).code, 0);
  const port = (await apps.getApp({ id: "again" })).ports[0]?.port ?? 0;
  await eventually(() => fetch(`http://127.0.0.1:${port}`));
  await fetch(`http://127.0.0.1:${port}/exit`).catch(() => undefined);
  await eventually(async () => {
    if ((await apps.getApp({ id: "again" })).restarts === 0) throw new Error("it was not restarted");
  });
  t.regex((await svc(daemon, ["ls"])).out, /RESTARTS[^]*\nagain .* 1 *\n/);
  await apps.removeApp({ id: "again" });
});

test("the RPC returns at once if there is nothing to wait for", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService);
  const path = join(daemon.dir, "plain");
  await writePackage(path, await freePort(), { id: "plain" });
  await apps.installApp({ spec: path });
  const wait = async (id: string): Promise<string[]> => {
    const cases: string[] = [];
    for await (const { event } of apps.awaitAppStream({ id })) cases.push(event.case ?? "");
    return cases;
  };
  t.like(await errorOf(wait("nope")), { code: "NotFound" });
  t.like(await errorOf(wait("plain")), { code: "FailedPrecondition" }, "it does not run");
  await apps.startApp({ id: "plain" });
  t.deepEqual(await wait("plain"), ["app"]);
  await apps.removeApp({ id: "plain" });
});
