/** `svc shell` and `svc app attach`, in pipes and at a real terminal. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { main } from "../support/svc-main.ts";

async function withApp(): Promise<TestDaemon> {
  const daemon = await startDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    manifest: "console: { exec: [sh, -c, 'echo ready; read x; echo said $x; exit 4'] }\n",
  });
  await daemon.client(AppService).installApp({ spec: dir });
  return daemon;
}

test("in a pipe it runs its input, and returns the exit code", async (t) => {
  await using daemon = await withApp();
  const svc = (args: readonly string[], input = ""): Promise<{ code: unknown; out: string; err: string }> =>
    new Promise((resolve) => {
      const child = execFile(
        process.execPath,
        [main, "--socket", daemon.socketPath, ...args],
        { maxBuffer: 2 ** 26 },
        (error, out, err) => resolve({ code: error?.code ?? 0, out, err }),
      );
      child.stdin?.end(input);
    });
  const script = "echo $SVC_APP_ID; echo oops >&2; tty; : >/dev/stdout; exit 9";
  const apart = { code: 9, out: "web\nnot a tty\n", err: "oops\n" };
  t.deepEqual(await svc(["app", "shell", "web", "--", "sh", "-c", script]), apart);
  const typed = await svc(["app", "shell", "web"], "echo sum=$((40+2))\nexit 5\n");
  t.deepEqual(typed, { code: 5, out: "sum=42\n", err: "" }, "no prompt, no echo");
  const much = "grüße €😀\n".repeat(200_000);
  const ended = await svc(["app", "shell", "web", "--", "cat"], much);
  t.deepEqual(
    [ended.code, ended.out === much],
    [0, true],
    "the end of the input is passed on, and all output arrives",
  );
  const late = await svc(["app", "shell", "web", "--", "sh", "-c", "sleep 1000 & echo left"]);
  t.deepEqual(late, { code: 0, out: "left\n", err: "" }, "leftover processes are not waited for");
  const keys = await svc(["app", "shell", "web", "--", "od", "-An", "-tx1"], "\x10\x11!");
  t.deepEqual(keys, { code: 0, out: " 10 11 21\n", err: "" }, "input from a file is passed on unchanged");
  const attached = await svc(["app", "attach", "web"], "hi\n");
  t.is(attached.code, 4);
  t.regex(attached.out, /ready[^]*said hi/);
  t.like(await svc(["app", "shell", "nothing"]), { code: 3 });
  for (const [command = "", code, why] of [
    ["no-such", 127, 'command not found: "no-such"'],
    ["/etc/passwd", 126, '"/etc/passwd" cannot be executed'],
  ] as const) {
    t.deepEqual(await svc(["app", "shell", "web", "--", command]), { code, out: "", err: `svc: ${why}\n` });
  }
});

test("at a terminal, keys are passed on unchanged, the window's size is followed, and Ctrl-P Ctrl-Q detaches", async (t) => {
  await using daemon = await withApp();
  await using userHelpers = createUserHelpers();
  const argv = [
    process.execPath,
    main,
    "--socket",
    daemon.socketPath,
    "app",
    "shell",
    "web",
    "--",
    "sh",
    "-i",
  ];
  const size = { columns: 90, rows: 30 };
  const program = { argv, cwd: "/", env: { NODE_NO_WARNINGS: "1" }, size };
  await using terminal = await userHelpers.openTerminal(userHelpers.selfUid, program);
  let shown = "";
  const read = (async () => {
    for await (const piece of terminal.output) if ("data" in piece) shown += piece.data.toString("utf8");
  })();
  const shows = (pattern: RegExp): Promise<void> => eventually(() => assert.match(shown, pattern), 20_000);
  await shows(/[#$] /);
  await terminal.write(Buffer.from("stty size\n"));
  await shows(/30 90/);
  terminal.resize({ columns: 70, rows: 20 });
  await eventually(async () => {
    await terminal.write(Buffer.from("stty size\n"));
    assert.match(shown, /20 70/);
  });
  await terminal.write(Buffer.from("sleep 1000\n"));
  await shows(/sleep 1000/);
  await terminal.write(Buffer.from("\x03"));
  await terminal.write(Buffer.from("echo alive-$((1+1))\n"));
  await shows(/alive-2/);
  // Typed keys arrive one by one.
  await terminal.write(Buffer.from("\x10"));
  await wait(300);
  await terminal.write(Buffer.from("\x11"));
  await shows(/Detached\./);
  t.is(await terminal.exitCode, 0);
  await read;
});

test("a daemon that stops ends the session with a message", async (t) => {
  await using daemon = await withApp();
  const child = spawn(
    process.execPath,
    [main, "--socket", daemon.socketPath, "app", "shell", "web", "--", "sh", "-i"],
    {
      stdio: ["pipe", "pipe", "pipe"],
    },
  );
  let err = "";
  child.stdout.resume();
  child.stderr.on("data", (text: Buffer) => (err += text.toString()));
  await eventually(() => assert.match(err, /[#$] /), 20_000);
  const exited = once(child, "exit");
  await daemon.stop();
  t.deepEqual(await exited, [6, null]);
  t.regex(err, /svc: the daemon is stopping/);
});
