/**
 * The end of sessions: cleanup, deadlines, and the passing of bytes; the limit of concurrent sessions. Console
 * clients that flood, stall or send invalid messages.
 */
import assert from "node:assert/strict";
import { readFile, access, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import {
  openConsole,
  type ConsoleRequest,
  type SocketConsole,
  connectConsole,
} from "../../console/support/socket-console.ts";
import { pidsRunning, uniqueSleep } from "../../runtimes/support/fixture.ts";
import { browserPath } from "../../support/browser.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import {
  startDaemon,
  type TestDaemon,
  isRoot,
  needsRoot,
  type UserConnection,
} from "../../support/daemon.ts";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { freePort, writePackage } from "../../support/packages.ts";
import { setTimeout as wait } from "node:timers/promises";

const emptyDaemon = sharedDaemon();

const patienceMs = 30_000;
/** The promise is one second. A busy host may take longer, but a leaked session would stay open forever. */
const boundMs = 5_000;
/** A program that prints its input. It is not a shell, because a shell reads byte by byte. */
const loop = "exec: [sed, --unbuffered, 's/^/got /']";

async function install(daemon: TestDaemon, manifest: string): Promise<void> {
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { manifest });
  await daemon.client(AppService).installApp({ spec: dir });
}

/** An app that is only a loop with its own terminal. */
async function installLoop(daemon: TestDaemon, id: string): Promise<void> {
  const dir = join(daemon.dir, id);
  const yaml = `id: ${id}\nname: Loop\nversion: "1"\nprocess:\n  ${loop}\nconsole: true\n`;
  await writePackage(dir, 1, { files: { "svc.yaml": yaml } });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id });
}

async function open(
  daemon: TestDaemon,
  session: string,
  appId = "web",
  options: Pick<ConsoleRequest, "maxShownChars"> = {},
): Promise<SocketConsole> {
  const { token } = await daemon.client(AppService).issueConsoleToken({ appId, session });
  return openConsole({ port: daemon.port }, { appId, session, token, ...options });
}

for (const withoutTerminal of [false, true]) {
  const what = withoutTerminal ? "pipes" : "a terminal";
  test(`a killed daemon leaves no process of a session with ${what}, even if it ignores signals`, async (t) => {
    await using daemon = await startDaemon();
    await install(daemon, "");
    const marker = uniqueSleep();
    const script = `trap '' HUP TERM; sleep ${marker} & (trap '' HUP; sleep ${marker}) & wait`;
    const left = new AbortController();
    async function* inputs() {
      yield { appId: "web", session: "shell", command: ["sh", "-c", script], withoutTerminal };
      await new Promise((resolve) => left.signal.addEventListener("abort", resolve));
    }
    const outputs = daemon.client(AppService, "grpc").attachConsole(inputs());
    const reading = (async () => {
      for await (const output of outputs) assert.ok(output);
    })().catch(() => undefined);
    await eventually(async () => assert.equal((await pidsRunning(marker)).length, 2), patienceMs);
    await daemon.kill();
    left.abort();
    await reading;
    await eventually(async () => assert.deepEqual(await pidsRunning(marker), []), patienceMs);
    t.pass();
  });
}

test("a client that disconnects hangs up: the program may clean up before it is killed", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon, "");
  const left = join(daemon.dir, "left");
  const script = `trap 'echo hung up > ${left}; exit' HUP; echo ready; while :; do sleep 0.1; done`;
  const gone = new AbortController();
  async function* inputs() {
    yield {
      appId: "web",
      session: "shell",
      command: ["sh", "-c", script],
      resize: { columns: 80, rows: 24 },
    };
    await new Promise((resolve) => gone.signal.addEventListener("abort", resolve));
  }
  const outputs = daemon.client(AppService, "grpc").attachConsole(inputs(), { signal: gone.signal });
  await t.throwsAsync(async () => {
    for await (const { output } of outputs) if (output.case === "data") gone.abort();
  });
  await eventually(async () => assert.equal(await readFile(left, "utf8"), "hung up\n"), patienceMs);
});

test("attached sessions close when the app stops or is removed, and shells when it is removed", async (t) => {
  const daemon = await emptyDaemon();
  await installLoop(daemon, "loop");
  const apps = daemon.client(AppService);
  const attached = await open(daemon, "attach", "loop");
  await eventually(() => assert.equal(attached.textFrames[0]?.["type"], "opened"), patienceMs);
  const stopping = apps.stopApp({ id: "loop" });
  t.is(await attached.closed, 1000);
  const closedMs = performance.now();
  await stopping;
  t.log(`closed ${Math.round(performance.now() - closedMs)} ms before the app was stopped`);
  t.like(attached.textFrames.at(-1), { type: "exit" });
  await apps.startApp({ id: "loop" });
  const sessions = [await open(daemon, "attach", "loop"), await open(daemon, "shell", "loop")];
  for (const { textFrames } of sessions) {
    await eventually(() => assert.equal(textFrames[0]?.["type"], "opened"), patienceMs);
  }
  const ended = sessions.map(async ({ closed }) => {
    await closed;
    return performance.now();
  });
  await apps.removeApp({ id: "loop" });
  const removedMs = performance.now();
  for (const closed of await Promise.all(ended))
    t.true(closed - removedMs < boundMs, `${closed - removedMs} ms`);
});

test("a session closes within a second after its token is revoked or its app is removed", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon, "console: { exec: [sh, -i] }\n");
  const took: Record<string, number> = {};
  for (const session of ["attach", "shell", "logs"]) {
    const { token: access } = await daemon.client(TokenService).issueAccessToken({ ttlSecs: 600 });
    const asked = daemon.tokenClient(AppService, "connect", access);
    const { token } = await asked.issueConsoleToken({ appId: "web", session });
    const console = await openConsole({ port: daemon.port }, { appId: "web", session, token });
    await eventually(() => assert.equal(console.textFrames[0]?.["type"], "opened"), patienceMs);
    await daemon.client(TokenService).revokeAccessTokens({});
    const revokedMs = performance.now();
    await console.closed;
    took[`revoked ${session}`] = performance.now() - revokedMs;
  }
  const sessions = await Promise.all(["attach", "shell", "logs"].map((session) => open(daemon, session)));
  for (const { textFrames } of sessions)
    await eventually(() => assert.equal(textFrames[0]?.["type"], "opened"), patienceMs);
  await daemon.client(AppService).removeApp({ id: "web" });
  const removedMs = performance.now();
  await Promise.all(sessions.map(({ closed }) => closed));
  took["removed"] = performance.now() - removedMs;
  for (const [what, ms] of Object.entries(took)) {
    t.log(`${what}: ${Math.round(ms)} ms`);
    t.true(ms < boundMs, `${what}: ${ms} ms`);
  }
});

test("characters split across messages arrive intact", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon, "");
  const text = "grüße €😀 — ✓";
  const pieces = [...Buffer.from(text)].map((byte) => `printf '\\${byte.toString(8)}'; sleep 0.02;`);
  async function* inputs() {
    yield await Promise.resolve({
      appId: "web",
      session: "shell",
      command: ["sh", "-c", pieces.join(" ")],
    });
  }
  const shown: Buffer[] = [];
  for await (const { output } of daemon.client(AppService, "grpc").attachConsole(inputs())) {
    if (output.case === "data") shown.push(Buffer.from(output.value));
  }
  // The terminal echoes the end of input as ^D and then erases it.
  t.is(Buffer.concat(shown).toString("utf8").replace("^D\b\b", ""), text);
});

test("a flood of output arrives complete and in order", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon, "");
  const numbers = 600_000;
  async function* inputs() {
    const command = ["sh", "-c", `seq ${numbers}; sleep 0.1; echo slow; seq ${numbers}`];
    yield await Promise.resolve({ appId: "web", session: "shell", command });
  }
  const shown: Buffer[] = [];
  for await (const { output } of daemon.client(AppService, "grpc").attachConsole(inputs())) {
    if (output.case === "data") shown.push(Buffer.from(output.value));
  }
  const all = Array.from({ length: numbers }, (_, index) => index + 1).join("\n");
  const text = Buffer.concat(shown).toString("latin1").replaceAll("^D\b\b", "");
  t.true(text.replaceAll("\r\n", "\n") === `${all}\nslow\n${all}\n`, `${text.length} bytes`);
});

test("^C stops a flood for a slow client, and little output follows", async (t) => {
  const daemon = await emptyDaemon();
  await install(daemon, "console: { exec: [sh, -i] }\n");
  const shell = await open(daemon, "attach");
  await shell.shows(/[#$] /);
  shell.sendMessage({ type: "ack", bytes: 1 });
  let shownBytes = 0;
  const shows = setInterval(() => {
    shownBytes = Math.min(shownBytes + 50_000, Buffer.byteLength(shell.shown()));
    if (shownBytes > 0) shell.sendMessage({ type: "ack", bytes: shownBytes });
  }, 20);
  shell.type("yes\n");
  await eventually(() => assert.ok(shell.shown().length > 1_000_000), patienceMs);
  const before = shell.shown().length;
  shell.type("\x03");
  shell.type("echo the-$((40+2))\n");
  await shell.shows("the-42");
  clearInterval(shows);
  const after = shell.shown().indexOf("the-42") - before;
  t.true(after < 600_000, `${after} bytes came after it`);
  shell.socket.terminate();
});

const many = process.env["SVC_LONG"] === "1" ? 1_000 : 100;

test(`${many} sessions with a stalled one: the others continue, and memory stays bounded`, async (t) => {
  t.timeout(900_000);
  await using daemon = await startDaemon({ config: "[api.limits]\nmax_root_connections = 2000\n" });
  const ofEach = 25;
  const ids = Array.from({ length: many / ofEach }, (_, index) => `loop-${index}`);
  for (const id of ids) await installLoop(daemon, id);
  const sessions: SocketConsole[] = [];
  // All output also reaches this process.
  const kept = { maxShownChars: 8_192 };
  // At most a hundred tokens may be unused at a time.
  for (const id of ids) {
    const opening = Array.from({ length: ofEach }, () => open(daemon, "attach", id, kept));
    sessions.push(...(await Promise.all(opening)));
  }
  const memory = async (): Promise<number> =>
    Number(/^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${daemon.pid}/status`, "utf8"))?.[1]) / 1024;
  const before = await memory();
  const [stalled, ...others] = sessions;
  stalled?.socket.pause();
  const long = "x".repeat(3_000);
  const lines = many > 100 ? 20 : 100;
  const after: number[] = [];
  for (let round = 0; round < 4; round++) {
    for (const [index] of ids.entries()) {
      const typist = sessions[index * ofEach + 1];
      for (let line = 0; line < lines; line++) typist?.type(`${long}\n`);
      typist?.type(`end-of-${round}\n`);
    }
    await eventually(() => {
      const waiting = others.filter(({ shown }) => !shown().includes(`got end-of-${round}`));
      assert.equal(waiting.length, 0, `round ${round}: ${waiting[0]?.shown().slice(-200)}`);
    }, 120_000);
    after.push(await memory());
  }
  // The garbage collector retains some memory of the first rounds, but not more in later ones.
  const grown = Math.min(...after.slice(2)) - Math.max(...after.slice(0, 2));
  t.log(`${before} MiB before, then ${after.join(", ")} MiB`);
  t.true(grown < 50, `${after.join(", ")} MiB`);
  for (const { socket } of sessions) socket.terminate();
});

// A shell through a real browser's WebSocket.

const browserTest = browserPath === undefined ? test.skip : test;
const why = browserPath === undefined ? " (skipped: no Chromium)" : "";

browserTest(`a page opens a shell, types, resizes and sees it exit${why}`, async (t) => {
  t.timeout(120_000);
  await using daemon = await startDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  const browser = await launchBrowser();
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${daemon.port}/`);
    // Created late: the token is valid for half a minute, and a browser may take as long to start.
    const { token } = await apps.issueConsoleToken({ appId: "web", session: "attach" });
    const seen = await page.evaluate(
      ({ token, host }) =>
        new Promise<{ text: string; textFrames: { type: string; code?: number }[]; code: number }>(
          (resolve) => {
            const url = `ws://${host}/v1/apps/web/console?session=attach`;
            const socket = new WebSocket(url, ["svc.console.v1", `svc.token.${token}`]);
            socket.binaryType = "arraybuffer";
            const decoder = new TextDecoder();
            const textFrames: { type: string }[] = [];
            let text = "";
            let step = 0;
            const type = (line: string): void => socket.send(new TextEncoder().encode(line));
            const steps: [RegExp, () => void][] = [
              [
                /[#$] /,
                () => {
                  socket.send(JSON.stringify({ type: "resize", cols: 91, rows: 33 }));
                  type("stty size; echo grüße-€😀-$((40+2))\n");
                },
              ],
              // Its output shows that it owns the terminal; before that, ^C would reach the shell.
              [/€😀-42/, () => type("sh -c 'echo begun-$((1+1)); exec sleep 1000'\n")],
              [/begun-2/, () => type("\x03exit 6\n")],
            ];
            socket.addEventListener("message", (event) => {
              const data: unknown = event.data;
              if (typeof data === "string") {
                textFrames.push(JSON.parse(data) as { type: string });
                return;
              }
              text += decoder.decode(data as ArrayBuffer, { stream: true });
              while (steps[step]?.[0].test(text) === true) steps[step++]?.[1]();
            });
            socket.addEventListener("close", ({ code }) => resolve({ text, textFrames, code }));
          },
        ),
      { token, host: `127.0.0.1:${daemon.port}` },
    );
    t.regex(seen.text, /33 91/);
    t.regex(seen.text, /grüße-€😀-42/);
    t.is(seen.code, 1000);
    t.deepEqual([seen.textFrames[0]?.type, seen.textFrames.at(-1)], ["opened", { type: "exit", code: 6 }]);
  } finally {
    await browser.close();
  }
});

// Console clients that flood, stall or send invalid messages.

const nobody = 65534;
/** A line of the flood. Short lines take the terminal as long as long ones. */
const line = "x".repeat(99);
const rootTest = isRoot ? test : test.skip;
async function installIn(daemon: TestDaemon): Promise<void> {
  const dir = join(daemon.dir, "package");
  // Not the user's own shell, which may run much at its start.
  await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
  await daemon.client(AppService).installApp({ spec: dir });
}

async function withApp(): Promise<TestDaemon> {
  const daemon = await emptyDaemon();
  await installIn(daemon);
  return daemon;
}

async function openHostile(daemon: TestDaemon, session = "attach"): Promise<SocketConsole> {
  const { token } = await daemon.client(AppService).issueConsoleToken({ appId: "web", session });
  return openConsole({ port: daemon.port }, { appId: "web", session, token });
}

async function memoryMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]) / 1024;
}

async function expectAlive(daemon: TestDaemon): Promise<void> {
  assert.equal((await daemon.client(AppService).getApp({ id: "web" })).id, "web");
}

test("a message that is too large or invalid closes only its own session", async (t) => {
  const daemon = await withApp();
  const large = await openHostile(daemon);
  large.socket.send(Buffer.alloc(2 ** 20 + 1));
  t.is(await large.closed, 1009);
  for (const text of ["{", "[]", '{"type":"resize","cols":0,"rows":5}', '{"type":"ack","bytes":-1}', "{}"]) {
    const odd = await openHostile(daemon);
    odd.socket.send(text);
    t.is(await odd.closed, 1008, text);
    t.like(odd.textFrames.at(-1), { type: "error", code: "invalid_argument" });
  }
  await expectAlive(daemon);
});

test("a message in more fragments than allowed ends its session", async (t) => {
  const daemon = await withApp();
  const { socket, closed } = await openHostile(daemon, "logs");
  for (let n = 0; n <= 64; n++) socket.send("x", { fin: false });
  t.is(await closed, 1008);
  await expectAlive(daemon);
});

test("a client that does not read blocks only its own terminal, and the daemon's memory stays bounded", async (t) => {
  // A process of its own, because memory freed by other tests would be reused first.
  await using daemon = await startDaemon();
  await installIn(daemon);
  const stalled = await openHostile(daemon);
  await stalled.shows(/[#$] /);
  const before = await memoryMiB(daemon.pid);
  stalled.socket.pause();
  // More than the connection buffers, so that the write cannot finish.
  const end = join(daemon.dir, "end");
  stalled.type(`yes ${line} | head -c 30000000; touch ${end}\n`);
  const other = await openHostile(daemon);
  other.type("i=0; while [ $i -lt 30 ]; do echo turn-$i; i=$((i+1)); sleep 0.2; done; echo the-$((40+2))\n");
  await other.shows("the-42");
  await t.throwsAsync(access(end), { code: "ENOENT" });
  const grown = (await memoryMiB(daemon.pid)) - before;
  t.true(grown < 60, `${grown} MiB more`);
  stalled.socket.resume();
  await eventually(() => access(end), 60_000);
  stalled.socket.terminate();
  other.socket.terminate();
});

test("input for a program that does not read is throttled without affecting others", async (t) => {
  const daemon = await withApp();
  const flooder = await openHostile(daemon);
  flooder.type("stty raw -echo; echo begun; exec sleep 1000\n");
  await flooder.shows("begun");
  const before = await memoryMiB(daemon.pid);
  for (let sent = 0; sent < 64; sent++) flooder.socket.send(Buffer.alloc(2 ** 20));
  const other = await openHostile(daemon);
  other.type("echo the-$((40+2))\n");
  await other.shows("the-42");
  // All buffers are full by now.
  await eventually(async () => {
    const before = flooder.socket.bufferedAmount;
    await wait(1_000);
    assert.equal(flooder.socket.bufferedAmount, before);
  }, 30_000);
  t.true(flooder.socket.bufferedAmount > 2 ** 25, "most of it waits at the sender");
  const grown = (await memoryMiB(daemon.pid)) - before;
  t.true(grown < 60, `${grown} MiB more`);
  flooder.socket.terminate();
  other.socket.terminate();
});

test("a slow log reader is notified of the number of skipped bytes", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "talks");
  // More than all retained log files.
  const script = `while [ ! -e ${daemon.dir}/go ]; do sleep 0.1; done; yes ${line} | head -c 200000000; echo the-$((40+2)); sleep 1000`;
  const yaml = `id: web\nname: Talks\nversion: "1"\nprocess:\n  exec: [sh, -c, "${script}"]\n`;
  await writePackage(dir, 1, { files: { "svc.yaml": yaml } });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const stalled = await openHostile(daemon, "logs");
  await eventually(() => assert.equal(stalled.textFrames[0]?.["type"], "opened"), 20_000);
  stalled.socket.pause();
  await writeFile(join(daemon.dir, "go"), "");
  const newest = async (): Promise<string> =>
    (await apps.getAppLogs({ id: "web", tail: 1 })).lines.map(({ text }) => text).join();
  await eventually(async () => assert.match(await newest(), /the-42/), 60_000);
  stalled.socket.resume();
  await eventually(() => assert.match(stalled.shown().slice(-200), /the-42/), 60_000);
  const missed = stalled.textFrames.reduce((sum, { bytes }) => sum + Number(bytes ?? 0), 0);
  t.true(missed > 10_000_000, `${missed} bytes`);
  stalled.socket.terminate();
});

test("a slow terminal viewer is notified of skipped bytes and gets the latest screen", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "talks");
  const script = `read x; yes ${line} | head -c 60000000; echo; echo the-$((40+2)); sleep 1000`;
  const yaml = `id: web\nname: Talks\nversion: "1"\nprocess:\n  exec: [sh, -c, "${script}"]\nconsole: true\n`;
  await writePackage(dir, 1, { files: { "svc.yaml": yaml } });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "web" });
  const stalled = await openHostile(daemon);
  await eventually(() => assert.equal(stalled.textFrames[0]?.["type"], "opened"), 20_000);
  stalled.socket.pause();
  const other = await openHostile(daemon);
  other.type("go\n");
  await eventually(() => assert.match(other.shown().slice(-200), /the-42/), 60_000);
  stalled.socket.resume();
  await eventually(() => assert.match(stalled.shown().slice(-200), /the-42/), 60_000);
  const gaps = stalled.textFrames.filter(({ type }) => type === "gap").map(({ bytes }) => Number(bytes));
  const missed = gaps.reduce((sum, bytes) => sum + bytes, 0);
  t.true(missed > 10_000_000, `${missed} bytes`);
  t.true(stalled.shown().length + missed >= 60_000_000, "the viewer receives the number of skipped bytes");
  for (const { socket } of [stalled, other]) socket.terminate();
});

test("sessions beyond an app's limit are rejected until one is closed", async (t) => {
  const daemon = await withApp();
  const sessions = await Promise.all(Array.from({ length: 32 }, () => openHostile(daemon, "logs")));
  await eventually(() => assert.ok(sessions.every(({ textFrames }) => textFrames.length > 0)), 20_000);
  const refused = await openHostile(daemon, "logs");
  await refused.closed;
  t.like(refused.textFrames.at(-1), { type: "error", reason: "too_many" });
  sessions[0]?.socket.terminate();
  await eventually(async () => {
    const another = await openHostile(daemon, "logs");
    await eventually(() => assert.ok(another.textFrames.length > 0));
    const [first] = another.textFrames;
    another.socket.terminate();
    assert.equal(first?.["type"], "opened");
  }, 20_000);
  for (const { socket } of sessions) socket.terminate();
});

rootTest(`the session limit of a user counts the sessions of all apps${needsRoot}`, async (t) => {
  await using daemon = await startDaemon({ config: "[limits]\nmax_consoles_per_user = 2\n" });
  await using user = await daemon.as(nobody);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  for (let app = 0; app < 2; app++) await user.client(AppService).installApp({ spec: dir });
  const openAs = async (client: Pick<UserConnection, "client">, appId: string): Promise<SocketConsole> => {
    const { token } = await client.client(AppService).issueConsoleToken({ appId, session: "logs" });
    return openConsole({ socketPath: daemon.socketPath }, { appId, session: "logs", token });
  };
  const sessions = [await openAs(user, "web"), await openAs(user, "web-2")];
  await eventually(() => assert.ok(sessions.every(({ textFrames }) => textFrames.length > 0)), 20_000);
  const refused = await openAs(user, "web-2");
  await refused.closed;
  t.like(refused.textFrames.at(-1), { type: "error", reason: "too_many" });
  t.regex(String(refused.textFrames.at(-1)?.["error"]), /uid 65534 has 2 .*max_consoles_per_user/);
  const roots = await openAs(daemon, "web");
  await eventually(() => assert.equal(roots.textFrames[0]?.["type"], "opened"), 20_000);
  sessions[0]?.socket.terminate();
  await eventually(async () => {
    const another = await openAs(user, "web");
    await eventually(() => assert.ok(another.textFrames.length > 0));
    another.socket.terminate();
    assert.equal(another.textFrames[0]?.["type"], "opened");
  }, 20_000);
  for (const { socket } of [...sessions, roots]) socket.terminate();
});

test("a thousand clients that open and close sessions do not delay others", async (t) => {
  const daemon = await withApp();
  const apps = daemon.client(AppService);
  for (let round = 0; round < 10; round++) {
    await Promise.all(
      Array.from({ length: 100 }, async () => {
        const socket = connectConsole(
          { port: daemon.port },
          { appId: "web", session: "logs", token: "svcc_nonsense" },
        );
        socket.on("error", () => undefined);
        await nextEvent(socket, "close");
      }),
    );
  }
  const { token } = await apps.issueConsoleToken({ appId: "web", session: "attach" });
  const shell = await openConsole(
    { socketPath: daemon.socketPath },
    { appId: "web", session: "attach", token },
  );
  shell.type("echo the-$((40+2))\n");
  await shell.shows("the-42");
  t.is((await apps.getApp({ id: "web" })).id, "web");
  shell.socket.terminate();
});
