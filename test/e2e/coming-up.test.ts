/** `start`, `restart` and `install --start` report that an app runs once it is healthy, and fail if it is not. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

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

const shared: { daemon?: TestDaemon } = {};
test.before(async () => {
  shared.daemon = await startDaemon();
});
test.after.always(() => shared.daemon?.[Symbol.asyncDispose]());

function sharedDaemon(): TestDaemon {
  if (shared.daemon === undefined) throw new Error("no daemon");
  return shared.daemon;
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
      if (!said.err.includes("waiting for")) throw new Error(`it does not wait: ${said.err}`);
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
    const daemon = sharedDaemon();
    const apps = daemon.client(AppService);
    const spec = await packageIn(daemon, id);
    const isInstall = name === "install --start";
    if (!isInstall) await apps.installApp({ spec });
    const ready = join(daemon.storeDir, "apps", id, "data", "ready");
    const run = await svc(daemon, isInstall ? [...args, spec] : args, () => writeFile(ready, ""));
    t.is(run.code, 0, run.err);
    const port = (await apps.getApp({ id })).ports[0]?.port ?? 0;
    t.regex(run.err, new RegExp(`start ${id}: health · waiting for GET /healthz on port ${port}`));
    t.regex(run.out, isInstall ? /^Running late-c 1\.0\.0/ : /^late-. is RUNNING on port/);
    t.is((await apps.getApp({ id })).health, "healthy");
    await apps.removeApp({ id });
  });
}

test("--no-wait returns at once", async (t) => {
  const daemon = sharedDaemon();
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await packageIn(daemon, "unasked") });
  const run = await svc(daemon, ["app", "start", "unasked", "--no-wait"]);
  t.like(run, { code: 0, err: "" });
  t.regex(run.out, /^unasked is STARTING on port/);
  await apps.removeApp({ id: "unasked" });
});

test("an app that does not stay up fails the command, is shown as failed, and uses new settings at the next start", async (t) => {
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  const spec = await packageIn(daemon, "web");
  const installed = await svc(daemon, ["install", spec, "--start", "--set", "greeting=crash"]);
  t.is(installed.code, 5, installed.err);
  t.regex(installed.err, /\| it listens\n/, "its last lines");
  t.regex(installed.err, /app "web" did not come up: BACKOFF after \d+ restarts: .*code 3/);
  const started = await svc(daemon, ["app", "restart", "web"]);
  t.is(started.code, 5, started.err);

  const [{ out: list }, { out: info }] = [
    await svc(daemon, ["ls"]),
    await svc(daemon, ["app", "info", "web"]),
  ];
  t.regex(list, /STARTING \(in \d+m/, "the countdown decreases");
  const waiting = await apps.getApp({ id: "web" });
  t.regex(waiting.endedReason ?? "", /^it exited with code 3$/);
  t.true(waiting.stateReason.endsWith(`: ${waiting.endedReason}`));
  t.regex(info, /State: +STARTING \(in \d+m[^]*Reason: +BACKOFF after/);
  const upgraded = await svc(daemon, ["upgrade", "--all", "--no-restart"]);
  t.like(upgraded, { code: 0, out: "" });
  t.regex(
    upgraded.err,
    /^Skipped web, which is STARTING \(in .*\): BACKOFF after .*: omit --no-restart to upgrade it\n$/,
  );

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
  const daemon = sharedDaemon();
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: await packageIn(daemon, "ill", "1s") });
  const run = await svc(daemon, ["app", "start", "ill"]);
  t.is(run.code, 5, run.err);
  t.regex(
    run.err,
    /app "ill" did not come up: its health check fails: GET \/healthz returned status 503; see what/,
  );
  const { out } = await svc(daemon, ["app", "info", "ill"]);
  t.regex(out, /State: +UNHEALTHY\n[^]*Health: +unhealthy: GET \/healthz returned status 503\n/);
  await apps.removeApp({ id: "ill" });
});

test("an app that was killed and restarted shows its number of restarts", async (t) => {
  const daemon = sharedDaemon();
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
  const daemon = sharedDaemon();
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
