/** Consoles of the command line at a terminal and in pipes, and recordings of sessions. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, lstat, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn, setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import { AppService, type ConsoleOutput } from "../../../gen/svc/v1/app_pb.ts";
import { OutputWindow } from "../../../src/console/output-window.ts";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import {
  type TestDaemon,
  type UserConnection,
  isRoot,
  needsRoot,
  startDaemon,
} from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { untilNoneLeft, processesIn } from "../../support/processes.ts";
import { main } from "../../support/svc-main.ts";

// Recordings of sessions: asciicast v2, files of the owner, limited.

const nobody = 65534;
const rootTest = isRoot ? test : test.skip;
const maxBytes = 8 * 2 ** 20;

interface Cast {
  readonly header: Record<string, unknown>;
  readonly events: readonly (readonly [number, string, string])[];
  readonly bytes: number;
}

/** As a player reads it: a header, then one event per line. */
async function readCast(path: string): Promise<Cast> {
  const text = await readFile(path, "utf8");
  assert.ok(text.endsWith("\n"));
  const [header = "", ...events] = text.trimEnd().split("\n");
  return {
    header: JSON.parse(header) as Record<string, unknown>,
    events: events.map((line) => JSON.parse(line) as [number, string, string]),
    bytes: Buffer.byteLength(text),
  };
}

function replay({ events }: Cast): string {
  return events.map(([, code, data]) => (code === "o" ? data : "")).join("");
}

async function hold(
  connection: Pick<UserConnection, "client">,
  session: string,
  command: string[] = [],
  withoutTerminal = false,
): Promise<{ recording: string; shown: string; code: number | undefined }> {
  const outputs: ConsoleOutput[] = [];
  const ended = Promise.withResolvers<undefined>();
  const inputs = async function* () {
    const size = withoutTerminal ? {} : { resize: { columns: 91, rows: 31 } };
    yield { appId: "web", session, command, withoutTerminal, ...size };
    if (!withoutTerminal) yield { resize: { columns: 60, rows: 20 } };
    await ended.promise;
  };
  try {
    for await (const message of connection.client(AppService, "grpc").attachConsole(inputs())) {
      outputs.push(message);
      if (message.output.case === "exit") ended.resolve(undefined);
    }
  } finally {
    ended.resolve(undefined);
  }
  let [recording, code]: [string, number | undefined] = ["", undefined];
  const shown: Uint8Array[] = [];
  for (const { output } of outputs) {
    if (output.case === "opened") recording = output.value.recording;
    else if (output.case === "exit") code = output.value.code;
    else if (output.case === "data" || output.case === "errorData") shown.push(output.value);
  }
  return { recording, shown: Buffer.concat(shown).toString("utf8"), code };
}

async function install(
  connection: Pick<UserConnection, "client">,
  dir: string,
  manifest: string,
): Promise<void> {
  await writePackage(join(dir, "package"), await freePort(), { manifest });
  await connection.client(AppService).installApp({ spec: join(dir, "package") });
}

rootTest(`a session's output is replayed from a file of the owner${needsRoot}`, async (t) => {
  t.timeout(180_000);
  await using daemon = await startDaemon();
  await using user = await daemon.as(nobody);
  const print = "printf 'gr\\303'; sleep 0.1; printf '\\274\\303\\237e \\033[31mred\\033[0m\\n'; exit 6";
  await install(
    user,
    daemon.dir,
    `console: { exec: [sh, -c, "${print.replaceAll("\\", "\\\\")}"], record: true }\n`,
  );
  const dir = join(daemon.storeDir, "apps/web");
  const held = await hold(user, "attach");
  t.is(held.code, 6);
  t.regex(held.recording, /^logs\/console\/\d{8}T\d{6}Z-attach-[0-9a-f]{8}\.cast$/);
  const cast = await readCast(join(dir, held.recording));
  t.like(cast.header, { version: 2, width: 91, height: 31, title: "attach in web" });
  t.true(Math.abs(Number(cast.header["timestamp"]) - Date.now() / 1_000) < 120);
  t.is(replay(cast), held.shown);
  t.regex(held.shown, /grüße .*red/, "split characters are intact");
  t.true(cast.events.every(([at], index) => at >= (cast.events[index - 1]?.[0] ?? 0)));
  t.true(cast.events.some(([, code, data]) => code === "r" && data === "60x20"));
  t.deepEqual(cast.events.at(-1)?.slice(1), ["m", "exit code 6"]);
  const { uid, mode } = await lstat(join(dir, held.recording));
  t.deepEqual([uid, mode & 0o777], [nobody, 0o600]);

  const flood = await hold(user, "shell", ["sh", "-c", "yes 0123456789 | head -c 12000000"], true);
  t.is(flood.shown.length, 12_000_000, "the session itself continues");
  const cut = await readCast(join(dir, flood.recording));
  t.true(cut.bytes <= maxBytes && cut.bytes > maxBytes - 300_000, `${cut.bytes} bytes`);
  t.deepEqual(cut.events.at(-1)?.slice(1), [
    "m",
    `the recording ends here: it reached its limit of ${maxBytes} bytes`,
  ]);
  t.true(flood.shown.startsWith(replay(cut)));

  const kept = join(dir, "logs/console");
  for (let index = 0; index < 60; index++)
    await writeFile(join(kept, `20200101T0000${index + 10}Z-old.cast`), "");
  await writeFile(join(kept, "notes.txt"), "mine");
  await hold(user, "attach");
  const names = await readdir(kept);
  t.is(names.filter((name) => name.endsWith(".cast")).length, 40, "the oldest are removed");
  t.true(names.includes("notes.txt") && names.some((name) => held.recording.endsWith(name)));
});

rootTest(
  `a session that must be recorded and cannot be is rejected, and nobody else's file is touched${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon();
    await using user = await daemon.as(nobody);
    await install(user, daemon.dir, "console: { terminal: false, record: true }\n");
    const logs = join(daemon.storeDir, "apps/web/logs");
    const foreign = join(daemon.dir, "foreign");
    await mkdir(foreign, { mode: 0o700 });
    await chmod(daemon.dir, 0o755);
    // The owner can do this to themselves without an advantage: the owner writes.
    await symlink(foreign, join(logs, "console"));
    const refused = await errorOf(hold(user, "shell", ["true"]));
    t.like(refused, { code: "Unavailable" });
    t.regex(refused.message, /recorded.*logs\/console/);
    t.deepEqual(await readdir(foreign), []);
    await rm(join(logs, "console"));
    t.is((await hold(user, "shell", ["sh", "-c", "exit 3"])).code, 3);
    t.like(await errorOf(hold(user, "attach")), { reason: "not_possible" });
  },
);

rootTest(`a session ends with its recorder${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  await using user = await daemon.as(nobody);
  await install(user, daemon.dir, "console: { terminal: false, record: true }\n");
  // Like a full disk, which makes cat exit.
  const end = signalRecorders("KILL");
  const error = await errorOf(hold(user, "shell", ["sh", "-c", `${end}; sleep 5; echo not recorded`], true));
  t.like(error, { code: "Unavailable" });
  t.regex(error.message, /nothing can be written to its logs\/console/);
});

rootTest(
  `a session ends with its client although its owner has stopped the recorder${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon();
    await using user = await daemon.as(nobody);
    await install(user, daemon.dir, "console: { terminal: false, record: true }\n");
    // The first output of a flood is more than a stopped recorder buffers.
    const command = ["sh", "-c", `${signalRecorders("STOP")}; echo $$; read go; exec yes`];
    const leave = new AbortController();
    const shown = Promise.withResolvers<number>();
    const inputs = async function* () {
      yield { appId: "web", session: "shell", command, withoutTerminal: true };
      await shown.promise;
      yield { data: Buffer.from("go\n") };
      await once(leave.signal, "abort");
    };
    const held = (async () => {
      const options = { signal: leave.signal };
      for await (const { output } of user.client(AppService, "grpc").attachConsole(inputs(), options)) {
        if (output.case === "data") shown.resolve(Number.parseInt(Buffer.from(output.value).toString(), 10));
      }
    })();
    const pid = await shown.promise;
    t.true(processesIn(daemon.dir).includes(pid));
    await eventually(async () => {
      // It waits, because nobody reads its output.
      assert.match(await readFile(`/proc/${pid}/stat`, "utf8"), /\(yes\) S/);
    }, 60_000);
    leave.abort();
    t.like(await errorOf(held), { code: "Canceled" });
    await untilNoneLeft(daemon.dir, 60_000, [pid]);
  },
);

/** Matches a shell of the session, which may start before its recorder. */
function signalRecorders(signal: string): string {
  const isOne = `case "$(readlink $p/fd/1)" in *.cast) kill -${signal} "$(basename $p)" && found=1;; esac`;
  return `while [ -z "$found" ]; do for p in /proc/[0-9]*; do ${isOne}; done; done 2>/dev/null`;
}

// How far output runs ahead of a client's acknowledgments.

const windowBytes = 128 * 1024;

/** Whether this many more bytes stay within the window. */
async function hasRoomAfter(window: OutputWindow, bytes: number): Promise<boolean> {
  let hasRoom = false;
  void window.countSent(bytes).then(() => (hasRoom = true));
  await turn();
  return hasRoom;
}

test("a client is sent as many bytes as it acknowledges, and not more than were sent", async (t) => {
  const silent = new OutputWindow();
  t.true(await hasRoomAfter(silent, 100 * windowBytes), "the transport's backpressure holds them back");

  const window = new OutputWindow();
  await window.countSent(10);
  // More than was sent.
  window.acknowledge(Number.MAX_SAFE_INTEGER);
  t.true(await hasRoomAfter(window, windowBytes - 1));
  const waiting = window.countSent(1);
  let isOver = false;
  void waiting.then(() => (isOver = true));
  await turn();
  t.false(isOver);
  // Earlier acknowledgments stay valid.
  window.acknowledge(1);
  await turn();
  t.false(isOver);
  window.acknowledge(11);
  await waiting;
  t.pass();
});

test("without acknowledgments required, all output is sent", async (t) => {
  const window = new OutputWindow();
  window.acknowledge(1);
  t.false(await hasRoomAfter(window, windowBytes));
  const taken = Promise.withResolvers<undefined>();
  const typing = window.openFor(taken.promise);
  t.true(await hasRoomAfter(window, windowBytes));
  taken.resolve(undefined);
  await typing;
  t.false(await hasRoomAfter(window, 1));
});

// `svc shell` and `svc app attach`, in pipes and at a real terminal.

async function withApp(): Promise<TestDaemon> {
  const daemon = await startDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    manifest: "console: { exec: [sh, -c, 'echo ready; read x; echo said $x; exit 4'] }\n",
  });
  await daemon.client(AppService).installApp({ spec: dir });
  return daemon;
}

test("in a pipe svc shell runs its input, and returns the exit code", async (t) => {
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

rootTest("a program starts on a host where /dev/null cannot be opened", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-terminal-"));
  t.teardown(() => rm(dir, { recursive: true }));
  await writeFile(join(dir, "variables"), "");
  const parent = join(import.meta.dirname, "../../../src/run-as/terminal-parent.sh");
  // A device without a driver, in a mount namespace of this test.
  const script = `
    mknod "$1/null" c 240 240 && mount --bind "$1/null" /dev/null || exit 99
    exec 3<"$1/variables" 4<"$1/variables"
    exec sh "$2" "Uid:\t0\t0\t0\t0" . "" / sh -c "echo started"`;
  const { stdout } = await promisify(execFile)("unshare", ["-m", "sh", "-c", script, "sh", dir, parent]);
  t.is(stdout, "started\n");
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
  // The terminal echoes keys before the shell reads them, so the shell itself shows that it has begun.
  await terminal.write(Buffer.from("echo begun-$((1+1)); sleep 1000\n"));
  await shows(/begun-2/);
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
