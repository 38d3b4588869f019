/** The end of sessions: cleanup, deadlines, and the passing of bytes; the limit of concurrent sessions. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import {
  openConsole,
  type ConsoleRequest,
  type SocketConsole,
} from "../../console/support/socket-console.ts";
import { pidsRunning, uniqueSleep } from "../../runtimes/support/fixture.ts";
import { browserPath } from "../../support/browser.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import { launchBrowser } from "../../support/launch-browser.ts";
import { freePort, writePackage } from "../../support/packages.ts";

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
  options: Pick<ConsoleRequest, "keptChars"> = {},
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
  await eventually(() => assert.equal(attached.said[0]?.["type"], "opened"), patienceMs);
  const stopping = apps.stopApp({ id: "loop" });
  t.is(await attached.closed, 1000);
  const closedMs = performance.now();
  await stopping;
  t.log(`closed ${Math.round(performance.now() - closedMs)} ms before the app was stopped`);
  t.like(attached.said.at(-1), { type: "exit" });
  await apps.startApp({ id: "loop" });
  const sessions = [await open(daemon, "attach", "loop"), await open(daemon, "shell", "loop")];
  for (const { said } of sessions) {
    await eventually(() => assert.equal(said[0]?.["type"], "opened"), patienceMs);
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
    await eventually(() => assert.equal(console.said[0]?.["type"], "opened"), patienceMs);
    await daemon.client(TokenService).revokeAccessTokens({});
    const revokedMs = performance.now();
    await console.closed;
    took[`revoked ${session}`] = performance.now() - revokedMs;
  }
  const sessions = await Promise.all(["attach", "shell", "logs"].map((session) => open(daemon, session)));
  for (const { said } of sessions)
    await eventually(() => assert.equal(said[0]?.["type"], "opened"), patienceMs);
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
  shell.say({ type: "ack", bytes: 1 });
  let shownBytes = 0;
  const shows = setInterval(() => {
    shownBytes = Math.min(shownBytes + 50_000, Buffer.byteLength(shell.shown()));
    if (shownBytes > 0) shell.say({ type: "ack", bytes: shownBytes });
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
  const kept = { keptChars: 8_192 };
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
        new Promise<{ text: string; said: { type: string; code?: number }[]; code: number }>((resolve) => {
          const url = `ws://${host}/v1/apps/web/console?session=attach`;
          const socket = new WebSocket(url, ["svc.console.v1", `svc.token.${token}`]);
          socket.binaryType = "arraybuffer";
          const decoder = new TextDecoder();
          const said: { type: string }[] = [];
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
              said.push(JSON.parse(data) as { type: string });
              return;
            }
            text += decoder.decode(data as ArrayBuffer, { stream: true });
            while (steps[step]?.[0].test(text) === true) steps[step++]?.[1]();
          });
          socket.addEventListener("close", ({ code }) => resolve({ text, said, code }));
        }),
      { token, host: `127.0.0.1:${daemon.port}` },
    );
    t.regex(seen.text, /33 91/);
    t.regex(seen.text, /grüße-€😀-42/);
    t.is(seen.code, 1000);
    t.deepEqual([seen.said[0]?.type, seen.said.at(-1)], ["opened", { type: "exit", code: 6 }]);
  } finally {
    await browser.close();
  }
});
