/** Recordings of sessions: asciicast v2, files of the owner, limited. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { chmod, lstat, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import test from "ava";
import { AppService, type ConsoleOutput } from "../../gen/svc/v1/app_pb.ts";
import { isRoot, needsRoot, startDaemon, type UserConnection } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { noneLeft, processesIn } from "../support/processes.ts";
import { OutputWindow } from "../../src/console/output-window.ts";

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
    await noneLeft(daemon.dir, 60_000, [pid]);
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
  void window.sent(bytes).then(() => (hasRoom = true));
  await turn();
  return hasRoom;
}

test("a client is sent as many bytes as it acknowledges, and not more than were sent", async (t) => {
  const silent = new OutputWindow();
  t.true(await hasRoomAfter(silent, 100 * windowBytes), "the transport's backpressure holds them back");

  const window = new OutputWindow();
  await window.sent(10);
  // More than was sent.
  window.acknowledge(Number.MAX_SAFE_INTEGER);
  t.true(await hasRoomAfter(window, windowBytes - 1));
  const waiting = window.sent(1);
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
