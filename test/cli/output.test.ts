/** Output that goes nowhere: a full disk is said, a reader that has seen enough is not, and a watcher waits for the daemon. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import test from "ava";
import { eventually } from "../support/eventually.ts";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc } from "./support/run-svc.ts";
import { main } from "../support/svc-main.ts";

const apps = [appOf({ id: "hello", state: "RUNNING" })];
const noSpace = "svc: cannot write the output: no space left on device\n";

for (const args of [["ls"], ["ls", "--json"], ["app", "logs", "hello"], ["app", "logs", "hello", "-f"]]) {
  test(`svc ${args.join(" ")} says that the disk is full`, async (t) => {
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

test("a reader that has seen enough is no error", async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const child = spawn(process.execPath, [main, "ls", "--socket", daemon.socketPath], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.destroy();
  const [said, [exitCode]] = await Promise.all([text(child.stderr), once(child, "exit")]);
  t.is(said, "");
  t.is(exitCode, 0);
});

test("a watched list goes on over a restart of the daemon", async (t) => {
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
    () => assert.match(stderr, /^(no daemon answers on|there is no socket) .*; waiting\n$/),
    30_000,
  );
  await using _after = await begin("after");
  await eventually(() => assert.match(stdout, /after/), 30_000);
  child.kill("SIGINT");
  const [exitCode] = await once(child, "exit");
  t.is(exitCode, 130);
});

for (const [line, form] of [
  ["status", "a pipe"],
  ["stacks", "a terminal"],
  ["ports", "JSON"],
] as const) {
  test(`svc ${line} --watch looks again until Ctrl-C (${form})`, async (t) => {
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
    const { exitCode } = await runSvc(args, { host: { stdout, interrupted: interrupted.signal } });
    t.is(exitCode, 130);
    t.is(looks.length, 2);
    const [first = "", second = ""] = looks;
    if (form === "JSON") t.true(looks.every((each) => /^[^\n]+\n$/.test(each) && JSON.parse(each) !== null));
    else if (form === "a pipe") t.is(second, first);
    else t.is(second, `\x1b[${first.split("\n").length - 1}A\x1b[J${first}`);
  });
}

for (const kind of ["pipe", "socket"]) {
  test(`a followed log ends when nobody reads it any more, though nothing is written (${kind})`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const follow = [process.execPath, main, "app", "logs", "hello", "-f", "--socket", daemon.socketPath];
    // Node's own pipes to a child are sockets.
    const child =
      kind === "pipe"
        ? spawn("sh", ["-c", '{ "$@"; echo "exit code $?" >&2; } | head -n 1', "sh", ...follow])
        : spawn("sh", ["-c", '"$@"; echo "exit code $?" >&2', "sh", ...follow]);
    const said = text(child.stderr);
    const [first] = (await once(child.stdout, "data")) as [Buffer];
    t.is(first.toString(), "first line of hello\n");
    child.stdout.destroy();
    t.is(await said, "exit code 0\n");
    await eventually(() => assert.equal(daemon.left(), 1));
  });
}
