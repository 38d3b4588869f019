import test from "ava";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { jobOf } from "./support/fake-schedules.ts";
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
  [["st"], ["status", "stats", "stacks"]],
  [
    ["app", "re"],
    ["restart", "repull", "remove"],
  ],
  [["app", "logs", "--fo"], ["--follow"]],
  [["app", "logs", "--tail", ""], []],
  [
    ["completion", ""],
    ["bash", "zsh", "fish"],
  ],
  [["completion", "bash", ""], []],
  [["api", "AppService.Start"], ["AppService.StartApp"]],
  [["--socket", "x", "dis"], ["disk"]],
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

test("containers and projects of the daemon are completed", async (t) => {
  await using daemon = await startFakeDaemon();
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["docker", ...socket, "stop", "w"]), ["web"]);
  t.deepEqual(await complete(["docker", ...socket, "stop", "web", "w"]), []);
  t.deepEqual(await complete(["docker", ...socket, "logs", "svc"]), ["svc-hello-1"]);
  t.deepEqual(await complete(["docker", ...socket, "restart", "--project", ""]), ["shop"]);
  t.deepEqual(await complete(["docker", "prune", "b"]), ["build-cache"]);
});

test("apps of the daemon are completed, those that are there already are not", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["app", ...socket, "start", "h"]), ["hello"]);
  t.deepEqual(await complete(["app", ...socket, "start", "hello", ""]), []);
  t.deepEqual(await complete(["app", ...socket, "settings", "he"]), ["hello"]);
});

test("jobs of the daemon are completed, and apps for --app", async (t) => {
  const jobs = [jobOf({ id: "echo" }), jobOf({ id: "push" })];
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })], { jobs, runs: {}, upserts: [] });
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["schedule", ...socket, "run", "e"]), ["echo"]);
  t.deepEqual(await complete(["schedule", ...socket, "runs", "-n", "1", ""]), ["echo"]);
  t.deepEqual(await complete(["schedule", ...socket, "rm", "echo", ""]), []);
  t.deepEqual(await complete(["schedule", ...socket, "add", "hourly", "backup", "--app", ""]), ["hello"]);
});

test("storages and sources of the daemon are completed, but for new ones", async (t) => {
  await using daemon = await startFakeDaemon([]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["backup", "create", ...socket, "x", "--storage", ""]), ["local", "nas"]);
  t.deepEqual(await complete(["backup", "storage", "rm", ...socket, "n"]), ["nas"]);
  t.deepEqual(await complete(["source", "remove", ...socket, ""]), ["main"]);
  t.deepEqual(await complete(["source", "add", ...socket, ""]), []);
});

test("what no list shows is no candidate, but is completed itself", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  t.deepEqual(await complete(["res"]), []);
  t.deepEqual(await complete(["restart", "--socket", daemon.socketPath, ""]), ["hello"]);
});

test("a daemon that does not answer completes nothing, at once", async (t) => {
  t.deepEqual(await complete(["app", "--socket", "/nonexistent", "start", ""]), []);
});

test("a daemon that takes a connection and says nothing completes nothing, soon", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-complete-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const mute = createServer().listen(join(dir, "socket"));
  await once(mute, "listening");
  t.teardown(() => mute.close());
  const begun = performance.now();
  t.deepEqual(await complete(["app", "--socket", join(dir, "socket"), "start", ""]), []);
  // Half a second is given to the daemon; the rest is a busy machine's.
  t.true(performance.now() - begun < 10_000);
});

test("the bash script is one", async (t) => {
  const { stdout } = await runSvc(["completion", "bash"]);
  await t.notThrowsAsync(run("bash", ["-n", "-c", stdout]));
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const script = `svc() { printf 'hello\\tHello\\nhelp\\tx\\n'; }\n${stdout}
COMP_WORDS=(svc app start h) COMP_CWORD=3 _svc_complete; printf '%s,' "\${COMPREPLY[@]}"`;
  t.is((await run("bash", ["-c", script], { env: { SOCKET: daemon.socketPath } })).stdout, "hello,help,");
});

for (const shell of ["zsh", "fish"]) {
  test(`the ${shell} script is one, where ${shell} is installed`, async (t) => {
    const { stdout } = await runSvc(["completion", shell]);
    t.regex(stdout, /svc __complete/);
    try {
      await run(shell, ["-n", "-c", stdout]);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      t.log(`${shell} is not installed: its syntax was not checked`);
    }
  });
}
