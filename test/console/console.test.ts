/** Consoles: the terminal of an app by gRPC and by WebSocket. */
import assert from "node:assert/strict";
import { once as nextEvent } from "node:events";
import { connect } from "node:http2";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import {
  AppService,
  type ConsoleOutput,
  ConsoleInputSchema,
  type ConsoleInput,
} from "../../gen/svc/v1/app_pb.ts";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { Consoles, type ConsolesOptions } from "../../src/console/consoles.ts";
import type { Terminal } from "../../src/lib/terminal.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { needsRoot, isRoot, startDaemon, type TestDaemon, type UserConnection } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { openConsole, statusOf, type ConsoleRequest, type SocketConsole } from "./support/socket-console.ts";

const emptyDaemon = sharedDaemon();

const nobody = 65534;
/** How late a client closes its own side: within the time that the daemon waits for it. */
const lateMs = 200;
const rootTest = isRoot ? test : test.skip;

async function installApp(
  daemon: TestDaemon,
  connection: Pick<UserConnection, "client"> = daemon,
): Promise<void> {
  const dir = join(daemon.dir, "package");
  // Not the user's own shell, which may run much at its start.
  await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
  await connection.client(AppService).installApp({ spec: dir });
}

async function tokenFor(
  connection: Pick<UserConnection, "client">,
  session: string,
  appId = "web",
): Promise<string> {
  return (await connection.client(AppService).issueConsoleToken({ appId, session })).token;
}

async function opened(
  daemon: TestDaemon,
  session: string,
  request: Partial<ConsoleRequest> = {},
): Promise<SocketConsole> {
  const token = await tokenFor(daemon, session);
  return openConsole({ port: daemon.port }, { appId: "web", session, token, ...request });
}

rootTest(`a shell runs as the owner, in the app's directory and environment${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await using user = await daemon.as(nobody);
  await installApp(daemon, user);
  const token = await tokenFor(user, "shell");
  const shell = await openConsole(
    { socketPath: daemon.socketPath },
    { appId: "web", session: "shell", token },
  );
  shell.sendMessage({ type: "resize", cols: 101, rows: 33 });
  shell.type(
    "echo uid=$(id -u) app=$SVC_APP_ID greeting=$GREETING; ls; stty size; stat -c %n=%a,%u $(tty)\n",
  );
  await shell.shows("uid=65534 app=web greeting=hello");
  await shell.shows("server.mjs");
  await shell.shows("33 101");
  // Nobody else reads it or writes to it.
  await shell.shows(/\/dev\/pts\/\d+=600,65534/);
  shell.type("exit 7\n");
  t.is(await shell.closed, 1000);
  t.deepEqual(shell.textFrames[0], { type: "opened", interactive: true });
  t.deepEqual(shell.textFrames.at(-1), { type: "exit", code: 7 });
});

rootTest(`nobody opens another user's console${needsRoot}`, async (t) => {
  const daemon = await emptyDaemon();
  await installApp(daemon);
  await using user = await daemon.as(nobody);
  const other = user.client(AppService);
  t.like(await errorOf(other.issueConsoleToken({ appId: "web", session: "shell" })), { code: "NotFound" });
  const grpc = user.client(AppService, "grpc");
  const attempt = grpc.attachConsole(once({ appId: "web", session: "shell" }));
  t.like(await errorOf(attempt), { code: "NotFound" });
});

test("^C reaches the program, text arrives intact, and the terminal is a terminal", async (t) => {
  const daemon = await emptyDaemon();
  await installApp(daemon);
  const shell = await opened(daemon, "attach", { tokenIn: "protocols" });
  t.is(shell.socket.protocol, "svc.console.v1");
  shell.type("sleep 1000; echo after=$?\n");
  await eventually(() => assert.match(shell.shown(), /sleep/));
  await new Promise((resolve) => setTimeout(resolve, 300));
  shell.type("\x03");
  shell.type("\necho still-$((40+2))\n");
  await shell.shows("still-42");
  shell.type("stty -echo; printf 'grüße %s\\n' 'äöü€😀'\n");
  await shell.shows("grüße äöü€😀");
  shell.type("x=$(head -c 1 /dev/null; cat | wc -c); echo got=$x\n");
  await new Promise((resolve) => setTimeout(resolve, 300));
  const line = `${"a".repeat(999)}\n`;
  for (let sent = 0; sent < 1_000; sent++) shell.type(line);
  shell.type("\x04");
  await shell.shows("got=1000000");
  shell.socket.terminate();
});

test("attach runs the package's command, logs shows the log and accepts no input", async (t) => {
  const daemon = await emptyDaemon();
  await installApp(daemon);
  const console = await opened(daemon, "attach");
  console.type("echo console of $SVC_APP_ID\n");
  await console.shows("console of web");
  console.type("exit\n");
  t.is(await console.closed, 1000);
  await daemon.client(AppService).startApp({ id: "web" });
  const log = await opened(daemon, "logs");
  await log.shows("listening on ");
  t.deepEqual(log.textFrames[0], { type: "opened", interactive: false });
  log.type("nothing\n");
  await daemon.client(AppService).restartApp({ id: "web" });
  await log.shows(/listening on [^]*listening on /);
  await daemon.client(AppService).removeApp({ id: "web" });
  await log.closed;
});

test("a token opens one console, only of its app and session, and never for a page of another origin", async (t) => {
  const daemon = await emptyDaemon();
  await installApp(daemon);
  const connection = { port: daemon.port };
  const token = await tokenFor(daemon, "logs");
  const request = { appId: "web", session: "logs", token };
  t.is(await statusOf(connection, { ...request, headers: { origin: "http://evil.example" } }), 403);
  t.is(await statusOf(connection, { ...request, headers: { host: "evil.example" } }), 403);
  t.is(await statusOf(connection, { ...request, session: "shell" }), 401);
  t.is(await statusOf(connection, { ...request, session: "nonsense" }), 400);
  t.is(await statusOf(connection, { ...request, appId: "other" }), 401);
  const tries = await Promise.all(Array.from({ length: 50 }, () => statusOf(connection, request)));
  t.is(tries.filter((status) => status === 101).length, 1, "an earlier failure has not used it up");
  t.true(tries.every((status) => status === 101 || status === 401 || status === 429));
  t.is(daemon.log().includes(token), false);
});

test("a client that guesses tokens is soon throttled, and one with a valid token is not", async (t) => {
  await using daemon = await startDaemon();
  await installApp(daemon);
  const connection = { port: daemon.port };
  const guess = { appId: "web", session: "logs", token: "svcc_nonsense" };
  const tries = [];
  for (let count = 0; count < 200 && tries.at(-1) !== 429; count++)
    tries.push(await statusOf(connection, guess));
  t.is(tries[0], 401);
  t.is(tries.at(-1), 429);
  t.is(await statusOf(connection, { ...guess, token: await tokenFor(daemon, "logs") }), 101);
});

test("a console request without a WebSocket fails with how to connect", async (t) => {
  const daemon = await emptyDaemon();
  const path = "/v1/apps/web/console?session=logs&token=svcc_x";
  const url = `http://127.0.0.1:${daemon.port}${path}`;
  const plain = await fetch(url);
  t.is(plain.status, 426);
  t.is(plain.headers.get("upgrade"), "websocket");
  t.like(await plain.json(), { code: "failed_precondition", reason: "upgrade_required" });
  t.is((await fetch(url, { method: "HEAD" })).status, 426);
  t.is((await fetch(url, { headers: { origin: "http://evil.example" } })).status, 403);

  const session = connect(`http://127.0.0.1:${daemon.port}`);
  const stream = session.request({ ":path": path });
  const [headers] = (await nextEvent(stream, "response")) as [Record<string, unknown>];
  t.is(headers[":status"], 426);
  t.is(headers["upgrade"], undefined);
  session.destroy();
});

test("a console closes with its token, with its app, and with the daemon", async (t) => {
  await using daemon = await startDaemon();
  await installApp(daemon);
  const { token: access } = await daemon.client(TokenService).issueAccessToken({ ttlSecs: 600 });
  const asked = daemon.tokenClient(AppService, "connect", access);
  const { token } = await asked.issueConsoleToken({ appId: "web", session: "attach" });
  const shell = await openConsole({ port: daemon.port }, { appId: "web", session: "attach", token });
  shell.type("trap '' HUP; echo pid=$$.\n");
  await shell.shows(/pid=\d+\./);
  const pid = Number(/pid=(\d+)\./.exec(shell.shown())?.[1]);
  await daemon.client(TokenService).revokeAccessTokens({});
  t.not(await shell.closed, 1000);
  await eventually(() => assert.throws(() => process.kill(pid, 0)), 10_000);

  const second = await opened(daemon, "attach");
  await second.shows(/[#$] /);
  await daemon.client(AppService).removeApp({ id: "web" });
  t.not(await second.closed, 1000);
  t.like(second.textFrames.at(-1), { type: "error", reason: "app_not_running" });
});

test("output never runs far ahead of a client's acknowledgments", async (t) => {
  const daemon = await emptyDaemon();
  await installApp(daemon);
  const shell = await opened(daemon, "attach");
  await shell.shows(/[#$] /);
  shell.sendMessage({ type: "ack", bytes: 1 });
  const before = shell.shown().length;
  shell.type("yes | head -c 5000000; echo; echo the-$((1+1))nd-line\n");
  let silentFor = 0;
  let seen = 0;
  const deadlineMs = performance.now() + 60_000;
  while (silentFor < 10) {
    assert.ok(performance.now() < deadlineMs, `output goes on after a minute: ${seen} bytes`);
    await new Promise((resolve) => setTimeout(resolve, 100));
    silentFor = shell.shown().length === seen && seen > before + 100_000 ? silentFor + 1 : 0;
    seen = shell.shown().length;
  }
  t.true(seen < 400_000, `${seen} bytes came without a request`);
  const acks = setInterval(
    () => shell.sendMessage({ type: "ack", bytes: Buffer.byteLength(shell.shown()) }),
    10,
  );
  await shell.shows("the-2nd-line").finally(() => clearInterval(acks));
  shell.socket.terminate();
});

test("gRPC behaves the same, and a session is audited with its caller", async (t) => {
  await using daemon = await startDaemon();
  await installApp(daemon);
  const apps = daemon.client(AppService, "grpc");
  const outputs: ConsoleOutput[] = [];
  const inputs = async function* () {
    yield { appId: "web", session: "shell", command: ["sh", "-c", "read a; echo got $a; exit 3"] };
    yield { data: Buffer.from("it\n") };
    await eventually(() => assert.equal(outputs.at(-1)?.output.case, "exit"));
  };
  for await (const output of apps.attachConsole(inputs())) outputs.push(output);
  t.is(outputs[0]?.output.case, "opened");
  t.regex(textOf(outputs), /got it/);
  t.like(outputs.at(-1)?.output, { case: "exit", value: { code: 3 } });
  await eventually(async () => {
    const { records } = await daemon.client(AuditService).listAudit({});
    const record = records.find(({ method }) => method.endsWith("/AttachConsole"));
    assert.deepEqual([record?.target, record?.result], ["web", "ok"]);
  });
  const attached = await opened(daemon, "attach");
  await attached.shows(/[#$] /);
  await wait(lateMs);
  attached.socket.terminate();
  await eventually(async () => {
    const { records } = await daemon.client(AuditService).listAudit({});
    const sessions = records.filter(({ method }) => method.endsWith("/AttachConsole"));
    assert.deepEqual(
      sessions.map(({ protocol, address }) => [protocol, address]).sort(),
      [
        ["grpc", ""],
        ["websocket", "127.0.0.1"],
      ],
      "from where",
    );
    const [socket] = sessions.filter(({ protocol }) => protocol === "websocket");
    assert.ok((socket?.durationMs ?? 0) >= lateMs, `how long: ${socket?.durationMs}`);
  }, 20_000);
  t.like(await errorOf(apps.attachConsole(once({ appId: "web" }))), { code: "InvalidArgument" });
  t.like(await errorOf(apps.attachConsole(once({ appId: "nothing", session: "shell" }))), {
    code: "NotFound",
  });
});

test("a client that closes its side only after the exit loses nothing, and one that never does is not waited for", async (t) => {
  await using daemon = await startDaemon();
  await installApp(daemon);
  const grpc = daemon.client(AppService, "grpc");
  const shell = { appId: "web", session: "shell", command: ["sh", "-c", "echo it; exit 3"] };
  let keptOpen = 0;
  for (let round = 0; round < 10; round++) {
    const outputs: ConsoleOutput[] = [];
    const ended = Promise.withResolvers<undefined>();
    const late = async function* () {
      yield shell;
      await ended.promise;
    };
    const reading = grpc.attachConsole(late())[Symbol.asyncIterator]();
    for (;;) {
      const next = await reading.next();
      if (next.done === true) break;
      outputs.push(next.value);
      if (next.value.output.case === "exit") break;
    }
    const closed = reading.next();
    const isOpen = await Promise.race([closed.then(() => false), wait(lateMs).then(() => true)]);
    if (isOpen) keptOpen++;
    ended.resolve(undefined);
    t.like(await closed, { done: true });
    t.like(outputs.at(-1)?.output, { case: "exit", value: { code: 3 } });
  }
  // Every time, on an idle host.
  t.true(keptOpen > 0, "closed after the exit, with the client's side open");
  const left = new AbortController();
  const never = async function* () {
    yield shell;
    await new Promise((resolve) => left.signal.addEventListener("abort", resolve));
  };
  const startMs = performance.now();
  for await (const { output } of grpc.attachConsole(never(), { signal: AbortSignal.timeout(30_000) })) {
    if (output.case === "exit") break;
  }
  left.abort();
  t.true(performance.now() - startMs < 20_000);
  await eventually(async () => {
    const { records } = await daemon.client(AuditService).listAudit({});
    assert.equal(records.filter(({ method }) => method.endsWith("/AttachConsole")).length, 11);
  });

  const token = await tokenFor(daemon, "attach");
  const socket = await openConsole({ port: daemon.port }, { appId: "web", session: "attach", token });
  await socket.shows(/[#$] /);
  socket.type("exit 5\n");
  await eventually(() => assert.equal(socket.textFrames.at(-1)?.["type"], "exit"), 20_000);
  const saidMs = performance.now();
  t.is(await socket.closed, 1000);
  t.true(performance.now() - saidMs < 1_500, "a WebSocket cannot close only one side");
});

async function* once<T>(message: T): AsyncGenerator<T> {
  yield await Promise.resolve(message);
}

function textOf(outputs: readonly ConsoleOutput[]): string {
  return outputs
    .map(({ output }) => (output.case === "data" ? Buffer.from(output.value).toString("utf8") : ""))
    .join("");
}

test("a client that ends its input again and again has one end of input waiting", async (t) => {
  const exited = Promise.withResolvers<number>();
  let [ends, sent] = [0, 0];
  const terminal: Terminal = {
    output: {
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          await exited.promise;
          return { done: true, value: undefined };
        },
      }),
    },
    exitCode: exited.promise,
    write: () => Promise.resolve(),
    // The console's program reads nothing.
    endInput: () => {
      ends++;
      return exited.promise.then(() => undefined);
    },
    resize: () => undefined,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const options = {
    finder: { find: () => Promise.resolve({ manifest: {} }), has: () => true },
    runtimes: { openTerminal: () => Promise.resolve(terminal) },
    maxPerUser: 1,
  };
  const consoles = new Consoles(options as unknown as ConsolesOptions);
  async function* inputs(): AsyncGenerator<ConsoleInput> {
    yield create(ConsoleInputSchema, { appId: "web", session: "shell" });
    for (; sent < 1_000; sent++) yield create(ConsoleInputSchema, { endOfInput: true });
    await exited.promise;
  }
  const textFrames: unknown[] = [];
  const over = (async () => {
    for await (const { output } of consoles.attach(
      inputs(),
      { uid: 1000, ownerUid: 1000, root: false },
      AbortSignal.timeout(60_000),
    ))
      textFrames.push(output?.case);
  })();
  await eventually(() => assert.equal(sent, 1_000));
  t.is(ends, 1);
  exited.resolve(0);
  await over;
  t.deepEqual(textFrames, ["opened", "exit"]);
});
