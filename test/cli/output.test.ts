/** Output that cannot be written: a full disk is reported, a closed pipe is not, and `--watch` waits for the daemon. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import test from "ava";
import { eventually, nextEvent } from "../support/eventually.ts";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc } from "./support/run-svc.ts";
import { main } from "../support/svc-main.ts";
import type { CliHost } from "../../src/cli/host.ts";
import { page } from "../../src/cli/output/pager.ts";
import { stateText } from "../../src/cli/output/app-table.ts";

const apps = [appOf({ id: "hello", state: "RUNNING" })];
const noSpace = "svc: cannot write the output: no space left on device\n";

for (const args of [["ls"], ["ls", "--json"], ["app", "logs", "hello"], ["app", "logs", "hello", "-f"]]) {
  test(`svc ${args.join(" ")} reports a full disk`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    await using full = await open("/dev/full", "w");
    const child = spawn(process.execPath, [main, ...args, "--socket", daemon.socketPath], {
      stdio: ["ignore", full.fd, "pipe"],
    });
    const [said, [exitCode]] = await Promise.all([
      text(child.stderr as NodeJS.ReadableStream),
      once(child, "exit"),
    ]);
    t.is(said, noSpace);
    t.is(exitCode, 1);
  });
}

test("a closed pipe is not an error", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const child = spawn(process.execPath, [main, "ls", "--socket", daemon.socketPath], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.destroy();
  const [said, [exitCode]] = await Promise.all([text(child.stderr), once(child, "exit")]);
  t.is(said, "");
  t.is(exitCode, 0);
});

test("a watched list continues after a restart of the daemon", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-watched-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const socket = join(dir, "svc.sock");
  const begin = async (id: string) => {
    const daemon = await startFakeDaemon([appOf({ id })]);
    await rm(socket, { force: true });
    await symlink(daemon.socketPath, socket);
    return daemon;
  };
  let [stdout, stderr] = ["", ""];
  const before = await begin("before");
  const child = spawn(process.execPath, [main, "ls", "--watch", "--socket", socket], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  await eventually(() => assert.match(stdout, /before/), 30_000);
  await before[Symbol.asyncDispose]();
  await eventually(
    () => assert.match(stderr, /^(no daemon responds on|there is no socket) .*; waiting\n$/),
    30_000,
  );
  await using _after = await begin("after");
  await eventually(() => assert.match(stdout, /after/), 30_000);
  child.kill("SIGINT");
  const [exitCode] = await nextEvent(child, "exit");
  t.is(exitCode, 130);
});

for (const [line, form] of [
  ["status", "a pipe"],
  ["stacks", "a terminal"],
  ["ports", "JSON"],
] as const) {
  test(`svc ${line} --watch polls until Ctrl-C (${form})`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const looks: string[] = [];
    const interrupted = new AbortController();
    const sink = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        looks.push(chunk.toString());
        if (looks.length === 2) interrupted.abort();
        done();
      },
    });
    const stdout = Object.assign(sink, { isTTY: form === "a terminal", columns: 80 });
    const args = [line, "--watch", "--socket", daemon.socketPath, ...(form === "JSON" ? ["--json"] : [])];
    const run = await runSvc(args, { host: { stdout, interrupted: interrupted.signal } });
    t.like(run, { exitCode: 130, stderr: "" });
    t.is(looks.length, 2);
    const [first = "", second = ""] = looks;
    if (form === "JSON") t.true(looks.every((each) => /^[^\n]+\n$/.test(each) && JSON.parse(each) !== null));
    else if (form === "a pipe") t.is(second, first);
    else t.is(second, `\x1b[${first.split("\n").length - 1}A\x1b[J${first}`);
  });
}

for (const kind of ["pipe", "socket"]) {
  test(`following a silent log ends when its reader has gone (${kind})`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const follow = [process.execPath, main, "app", "logs", "hello", "-f", "--socket", daemon.socketPath];
    // Node's own pipes to a child are sockets.
    const child =
      kind === "pipe"
        ? spawn("sh", ["-c", '{ "$@"; echo "exit code $?" >&2; } | head -n 1', "sh", ...follow])
        : spawn("sh", ["-c", '"$@"; echo "exit code $?" >&2', "sh", ...follow]);
    const said = text(child.stderr);
    const [first] = (await nextEvent(child.stdout, "data")) as [Buffer];
    t.is(first.toString(), "first line of hello\n");
    child.stdout.destroy();
    t.is(await said, "exit code 0\n");
    await eventually(() => assert.equal(daemon.left(), 1));
  });
}

// Listeners for Ctrl-C while a pager has the terminal.

/** A terminal with three rows. */
function hostWith(env: CliHost["env"]): { host: CliHost; written: string[] } {
  const written: string[] = [];
  const stdout = { isTTY: true, rows: 3, write: (text: string) => written.push(text) };
  const host = { env: { ...process.env, ...env }, stdin: { isTTY: true }, stdout, stderr: { isTTY: true } };
  return { host: host as unknown as CliHost, written };
}

for (const [name, PAGER] of [
  ["one", "cat > /dev/null"],
  ["a missing one", "/nonexistent/pager"],
] as const) {
  test(`with ${name} SIGINT always has a listener, and the previous listeners return at the end`, async (t) => {
    const before = process.listeners("SIGINT");
    const own = (): void => undefined;
    process.on("SIGINT", own);
    const left: number[] = [];
    const onRemoved = (event: string | symbol): void => {
      if (event === "SIGINT") left.push(process.listenerCount("SIGINT"));
    };
    process.on("removeListener", onRemoved);
    const { host, written } = hostWith({ PAGER });
    await page(host, "one\ntwo\nthree\nfour\n");
    process.off("removeListener", onRemoved);
    t.is(written.length, PAGER.startsWith("cat") ? 0 : 1);
    t.true(left.length > 0);
    t.false(left.includes(0), left.join());
    t.deepEqual(process.listeners("SIGINT"), [...before, own]);
    process.off("SIGINT", own);
  });
}

test("a state includes when the app starts again", (t) => {
  const next_restart_at = "2026-01-01T00:00:15Z";
  const nowMs = Date.parse("2026-01-01T00:00:00Z");
  const text = (state: string): string => stateText({ state, next_restart_at, tasks: [] }, nowMs);
  t.is(text("STARTING"), "STARTING (restart in 15s)");
  t.is(text("FAILED"), "FAILED (retry in 15s)");
  t.is(text("STOPPED"), "STOPPED (restart in 15s)");
  t.is(text("CRASHED"), "CRASHED (restart in 15s)");
  t.is(text("RUNNING"), "RUNNING");
  t.is(stateText({ state: "STOPPED", tasks: [] }, nowMs), "STOPPED");
});

const task = (state: string, service = "") => ({ service, state, slot: 1, node: "node1", message: "" });

for (const [what, placement, tasks, says] of [
  [
    "some run",
    { on: "swarm", replicas: 3 },
    [task("running"), task("pending"), task("running")],
    "2 of 3 tasks",
  ],
  [
    "the swarm has not created the others yet",
    { on: "swarm", replicas: 3 },
    [task("running")],
    "1 of 3 tasks",
  ],
  ["all run", { on: "swarm", replicas: 1 }, [task("running")], ""],
  ["surplus tasks are stopping", { on: "swarm", replicas: 1 }, [task("running"), task("running")], ""],
  [
    "a project's job has finished",
    { on: "swarm", replicas: 2 },
    [task("running", "web"), task("complete", "job")],
    "",
  ],
  [
    "one of a project's services has no node",
    { on: "swarm", replicas: 1 },
    [task("running", "web"), task("pending", "store")],
    "1 of 2 tasks",
  ],
  ["it is on this machine", undefined, [], ""],
] as const) {
  test(`a state includes how many tasks run on a swarm: ${what}`, (t) => {
    const app = {
      tasks: [...tasks],
      ...(placement && { placement: { ...placement, ports: "host" } }),
    };
    t.is(stateText({ ...app, state: "RUNNING" }, 0), says === "" ? "RUNNING" : `RUNNING (${says})`);
    t.is(stateText({ ...app, state: "STOPPED" }, 0), "STOPPED");
    const unhealthy = stateText({ ...app, state: "RUNNING", status: "UNHEALTHY" }, 0);
    t.is(unhealthy, says === "" ? "UNHEALTHY" : `UNHEALTHY (${says})`);
  });
}
