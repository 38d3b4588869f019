import test from "ava";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { jobOf } from "./support/fake-schedules.ts";
import type { App } from "../../gen/svc/v1/app_pb.ts";
import { main } from "../support/svc-main.ts";
import { runSvc } from "./support/run-svc.ts";

const run = promisify(execFile);

async function complete(words: readonly string[]): Promise<string[]> {
  const { stdout, exitCode } = await runSvc(["__complete", ...words]);
  return exitCode === 0
    ? stdout
        .split("\n")
        .slice(0, -1)
        .map((line) => line.split("\t")[0] ?? "")
    : ["failed"];
}

for (const [words, expected] of [
  [["st"], ["start", "stop", "stats", "stacks", "status"]],
  [
    ["help", "pa"],
    ["package", "package-your-app", "packages"],
  ],
  [["help", "backup", "ve"], ["verify"]],
  [["backup", "help", "ve"], ["verify"]],
  [["backup", "help", "pa"], []],
  [
    ["app", "re"],
    ["restart", "repull", "rename", "remove"],
  ],
  [["app", "logs", "--fol"], ["--follow"]],
  [["app", "logs", "--tail", ""], []],
  [
    ["completion", ""],
    ["bash", "zsh", "fish"],
  ],
  [["completion", "bash", ""], []],
  [["api", "AppService.Start"], ["AppService.StartApp"]],
  [["--socket", "x", "dis"], ["disk"]],
  [
    ["ls", "--state", "st"],
    ["stopped", "starting", "stopping"],
  ],
  [["ls", "--runtime", "do"], ["docker"]],
  [
    ["events", "--kind", "app.c"],
    ["app.changed", "app.crashed"],
  ],
  [
    ["schedule", "r"],
    ["remove", "run", "runs"],
  ],
  [
    ["schedule", "add", "hourly", "app_s"],
    ["app_start", "app_stop"],
  ],
  [["schedule", "add", "hourly", "http", "--method", "PA"], ["PATCH"]],
  [["schedule", "add", "--catch"], ["--catch-up"]],
] as const) {
  test(`svc ${words.join(" ")}<TAB>`, async (t) => t.deepEqual(await complete(words), [...expected]));
}

test("names of the daemon's containers and projects are completed", async (t) => {
  await using daemon = await startFakeDaemon();
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["docker", ...socket, "stop", "w"]), ["web"]);
  t.deepEqual(await complete(["docker", ...socket, "stop", "web", "w"]), []);
  t.deepEqual(await complete(["docker", ...socket, "logs", "svc"]), ["svc-hello-1"]);
  t.deepEqual(await complete(["docker", ...socket, "restart", "--project", ""]), ["shop"]);
  t.deepEqual(await complete(["docker", "prune", "b"]), ["build-cache"]);
});

test("IDs of the daemon's apps are completed, except those already on the line", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["app", ...socket, "start", "h"]), ["hello"]);
  t.deepEqual(await complete(["app", ...socket, "start", "hello", ""]), []);
  t.deepEqual(await complete(["app", ...socket, "settings", "he"]), ["hello"]);
});

test("IDs of the daemon's jobs are completed, and apps for --app", async (t) => {
  const jobs = [jobOf({ id: "echo" }), jobOf({ id: "push" })];
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })], { jobs, runs: {}, upserts: [] });
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["schedule", ...socket, "run", "e"]), ["echo"]);
  t.deepEqual(await complete(["schedule", ...socket, "runs", "-n", "1", ""]), ["echo"]);
  t.deepEqual(await complete(["schedule", ...socket, "rm", "echo", ""]), []);
  t.deepEqual(await complete(["schedule", ...socket, "add", "hourly", "backup", "--app", ""]), ["hello"]);
});

test("existing storages and sources are completed, but not names of new ones", async (t) => {
  await using daemon = await startFakeDaemon([]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["backup", "create", ...socket, "x", "--storage", ""]), ["local", "nas"]);
  t.deepEqual(await complete(["backup", "storage", "rm", ...socket, "n"]), ["nas"]);
  t.deepEqual(await complete(["source", "remove", ...socket, ""]), ["main"]);
  t.deepEqual(await complete(["source", "add", ...socket, ""]), []);
});

test("packages of the sources and archives of an app are completed", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["install", ...socket, "w"]), ["web"]);
  t.deepEqual(await complete(["restore", ...socket, "hello", ""]), ["latest", "hello-1.tar.zst"]);
  t.deepEqual(await complete(["backup", "verify", ...socket, "hello", "hello-"]), ["hello-1.tar.zst"]);
});

test("tags of the named app are completed if the daemon already knows them", async (t) => {
  const origin = (tag: string, kind = "git") => ({ origin: { kind, url: "/r", tag } }) as Partial<App>;
  const apps = [
    appOf({ id: "web", ...origin("v1.0.0"), availableVersion: "v1.1.0" }),
    appOf({ id: "tracked", ...origin("") }),
    appOf({ id: "plain", ...origin("", "directory"), availableVersion: "9.0.0" }),
  ];
  await using daemon = await startFakeDaemon(apps, undefined, apps.length);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["upgrade", ...socket, "web", "--version", ""]), ["v1.1.0", "v1.0.0"]);
  t.deepEqual(await complete(["upgrade", ...socket, "--version", "v1.1"]), ["v1.1.0"]);
  t.deepEqual(await complete(["upgrade", ...socket, "plain", "--version", ""]), []);
});

for (const { what, words, expected } of [
  { what: "apps", words: ["app", "start", ""], expected: "web-1000" },
  { what: "tags", words: ["upgrade", "web-1000", "--version", ""], expected: "v2" },
  { what: "jobs", words: ["schedule", "run", ""], expected: "echo" },
  { what: "storages", words: ["backup", "create", "web-1", "--storage", ""], expected: "nas" },
  { what: "containers", words: ["docker", "stop", ""], expected: "web" },
]) {
  test(`a bundle completes ${what} with one request, in one process`, async (t) => {
    const origin = { kind: "git", url: "/r", tag: "v1" } as App["origin"] & object;
    const apps = Array.from({ length: 1_000 }, (_, at) =>
      appOf({ id: `web-${at + 1}`, origin, availableVersion: "v2" }),
    );
    await using daemon = await startFakeDaemon(
      apps,
      { jobs: [jobOf({ id: "echo" })], runs: {}, upserts: [] },
      apps.length,
    );
    const seen = await mkdtemp(join(tmpdir(), "svc-seen-"));
    t.teardown(() => rm(seen, { recursive: true }));
    const line = ["__complete", words[0] ?? "", "--socket", daemon.socketPath, ...words.slice(1)];
    const env = { PATH: process.env["PATH"] ?? "", HOME: seen, NODE_V8_COVERAGE: seen };
    const { stdout } = await run(process.execPath, [main, ...line], { env });
    t.true(
      stdout.split("\n").some((each) => each.startsWith(`${expected}\t`)),
      stdout.slice(0, 200),
    );
    t.is(daemon.requests.length, 1);
    // One report for each process: a daemon would write another one.
    t.is((await readdir(seen)).length, 1);
  });
}

test("short forms complete IDs; a hidden command is not a candidate, but its arguments are completed", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  for (const verb of ["restart", "logs", "rm", "info", "status", "open", "exec", "settings", "update"])
    t.deepEqual(await complete([verb, ...socket, "he"]), ["hello"], verb);
  t.deepEqual(await complete(["app", "l"]), ["logs"]);
  t.deepEqual(await complete(["app", "ls", "--own"]), ["--owner"]);
});

test("an unreachable daemon completes nothing, without delay", async (t) => {
  t.deepEqual(await complete(["app", "--socket", "/nonexistent", "start", ""]), []);
});

test("an unresponsive daemon completes nothing, after a short timeout", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-complete-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const mute = createServer().listen(join(dir, "socket"));
  await once(mute, "listening");
  t.teardown(() => mute.close());
  const begun = performance.now();
  t.deepEqual(await complete(["app", "--socket", join(dir, "socket"), "start", ""]), []);
  // The daemon has half a second; the rest allows for a slow test host.
  t.true(performance.now() - begun < 10_000);
});

test("keys of settings are completed, and values of enums", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const after = (...words: string[]) =>
    complete(["--socket", daemon.socketPath, "app", "settings", ...words]);
  t.deepEqual(await after("get", "hello", "ch"), ["channel"]);
  t.deepEqual(await after("hello", "ch"), ["channel"]);
  t.deepEqual(await after("unset", "hello", "channel", "ch"), [], "each once");
  t.deepEqual(await after("set", "hello", "gre"), ["greeting="]);
  t.deepEqual(await after("set", "hello", "ch"), ["channel="]);
  t.deepEqual(await after("set", "hello", "le"), ["level=low", "level=high"]);
  t.deepEqual(await after("set", "hello", "level=h"), ["level=high"]);
});
