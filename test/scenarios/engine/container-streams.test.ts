/** Streams of containers: attached ones, and logs with and without a terminal. */
import assert from "node:assert/strict";
import { PassThrough, type Duplex } from "node:stream";
import test from "ava";
import { attachContainer, WatchedSizes } from "../../../src/engine/container-attachment.ts";
import { followContainerLog, readContainerLog } from "../../../src/engine/container-logs.ts";
import { createDockerEngine, type DockerEngine } from "../../../src/engine/engine.ts";
import { SvcError } from "../../../src/errors.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker, startEngine, type TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";

// Attaching to a container that exits at the same time.

const engineNow = sharedEngine();
const image = "example.org/attached:1";

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  await engineNow().images.build(image, {
    entrypoint: ["/bin/sh", "-c", "read -r line; echo got $line; exit 6"],
  });
});

/** Never reports the end of a stream, as the engine does for a stream that is opened while the container exits. */
function forgetful(engine: DockerEngine): DockerEngine {
  return {
    socket: engine.socket,
    call: (...call) => engine.call(...call),
    operate: (...call) => engine.operate(...call),
    ping: (options) => engine.ping(options),
    apiVersion: (signal) => engine.apiVersion(signal),
    open: async (what, work, options) => {
      const opened = await engine.open(what, work, options);
      const endless = new PassThrough();
      const stream = opened.stream as unknown as Duplex;
      stream.pipe(endless, { end: false });
      return { ...opened, stream: opened.stream, chunks: endless as AsyncIterable<Buffer> };
    },
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  };
}

dockerTest(`attaching to a container that has exited fails with the reason${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: engineNow().socket });
  const id = await engineNow().run("ended", {
    Image: image,
    Tty: true,
    Entrypoint: ["/bin/sh", "-c", "exit 4"],
  });
  (await engineNow().request("POST", `/containers/${id}/wait`)).expect(200);
  const attachments = { sizes: new WatchedSizes(), onDeath: () => ({ [Symbol.dispose]: () => undefined }) };
  const attached = attachContainer(engine, id, attachments, undefined);
  const late = AbortSignal.timeout(20_000);
  const answer = await Promise.race([
    attached.then(
      () => "attached",
      (error: unknown) => error,
    ),
    new Promise((resolve) => late.addEventListener("abort", () => resolve("no reply"))),
  ]);
  t.like(answer, { reason: "app_not_running" });
});

dockerTest(
  `a stream ends with its container even if the engine does not report it${needsDocker}`,
  async (t) => {
    t.timeout(60_000);
    await using engine = createDockerEngine({ socket: engineNow().socket });
    const id = await engineNow().run("ending", { Image: image, Tty: true, OpenStdin: true });
    let died = (): void => assert.fail("nobody listens");
    let isListening = false;
    const onDeath = (containerId: string, callback: () => void): Disposable => {
      assert.equal(containerId, id);
      died = callback;
      isListening = true;
      return { [Symbol.dispose]: () => (isListening = false) };
    };
    const terminal = await attachContainer(
      forgetful(engine),
      id,
      { sizes: new WatchedSizes(), onDeath },
      { columns: 80, rows: 24 },
    );
    await terminal.write(Buffer.from("it\n"));
    (await engineNow().request("POST", `/containers/${id}/wait`)).expect(200);
    died();
    const text = (await Array.fromAsync(terminal.output))
      .map((piece) => ("data" in piece ? piece.data.toString("utf8") : ""))
      .join("");
    t.regex(text, /got it/);
    t.is(await terminal.exitCode, 6);
    await terminal[Symbol.asyncDispose]();
    t.false(isListening);
  },
);

// Logs of containers with and without a terminal, stored and followed.

/** Runs a script to its end. */
async function runToEnd(engine: TestEngine, name: string, script: string, more = {}): Promise<string> {
  await engine.images.build("svc/log:1");
  const id = await engine.run(name, { Image: "svc/log:1", Cmd: ["/bin/sh", "-c", script], ...more });
  (await engine.request("POST", `/containers/${id}/wait`)).expect(200);
  return id;
}

dockerTest(`both streams are in order, each line with its time${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: engineNow().socket });
  const before = Date.now();
  const script = "echo one; sleep 0.05; echo two >&2; sleep 0.05; echo; printf 'no end \\303\\244'";
  const id = await runToEnd(engineNow(), "streams", script);
  const { lines, truncated } = await readContainerLog(engine, { id, hasTerminal: false }, { tail: 100 });
  t.deepEqual(
    lines.map(({ stream, text }) => [stream, text]),
    [
      ["stdout", "one"],
      ["stderr", "two"],
      ["stdout", ""],
      ["stdout", "no end ä"],
    ],
  );
  t.false(truncated);
  t.true(lines.every(({ timeMs }) => timeMs >= before - 1000 && timeMs <= Date.now() + 1000));
  const last = await readContainerLog(engine, { id, hasTerminal: false }, { tail: 2 });
  t.deepEqual(last.lines, lines.slice(-2));
  const none = await readContainerLog(engine, { id, hasTerminal: false }, { tail: 0 });
  t.deepEqual(none.lines, []);
});

dockerTest(`a terminal's lines end as on a terminal${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: engineNow().socket });
  const id = await runToEnd(engineNow(), "terminal", "echo one; echo two >&2; printf 'three'", { Tty: true });
  const { lines } = await readContainerLog(engine, { id, hasTerminal: true }, { tail: 100 });
  t.deepEqual(
    lines.map(({ stream, text }) => [stream, text]),
    [
      ["stdout", "one"],
      ["stdout", "two"],
      ["stdout", "three"],
    ],
  );
  t.true(lines.every(({ timeMs }) => timeMs > 0));
});

for (const hasTerminal of [false, true]) {
  const title = `a line of 200,000 bytes comes in pieces, without the times that the engine puts into it: ${hasTerminal ? "terminal" : "frames"}`;
  dockerTest(`${title}${needsDocker}`, async (t) => {
    await using engine = createDockerEngine({ socket: engineNow().socket });
    const script = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end";
    const id = await runToEnd(engineNow(), `long-${String(hasTerminal)}`, script, { Tty: hasTerminal });
    const { lines } = await readContainerLog(engine, { id, hasTerminal }, { tail: 100 });
    t.deepEqual(
      lines.map(({ text }) => text.length),
      [65_536, 65_536, 65_536, 200_000 - 3 * 65_536, 3],
    );
    t.true(lines.slice(0, -1).every(({ text }) => /^x+$/.test(text)));
  });
}

dockerTest(`a log beyond 8 MiB loses its oldest lines${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: engineNow().socket });
  const script = "yes 0123456789012345678901234567890123456789 | head -n 250000; echo last";
  const id = await runToEnd(engineNow(), "big", script);
  const { lines, truncated } = await readContainerLog(
    engine,
    { id, hasTerminal: false },
    { tail: 1_000_000 },
  );
  t.true(truncated);
  t.is(lines.at(-1)?.text, "last");
  const sizeBytes = lines.reduce((sum, { text }) => sum + text.length, 0);
  t.true(sizeBytes <= 8 << 20 && sizeBytes > (8 << 20) - 100);
});

dockerTest(
  `a log is followed until its reader disconnects or its container exits${needsDocker}`,
  async (t) => {
    await using engine = createDockerEngine({ socket: engineNow().socket });
    const script = "echo first; while [ ! -e /go ]; do sleep 0.05; done; echo second; sleep 3600";
    await engineNow().images.build("svc/log:1");
    const id = await engineNow().run("followed", { Image: "svc/log:1", Cmd: ["/bin/sh", "-c", script] });
    const container = { id, hasTerminal: false };
    const reader = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      for await (const { lines } of followContainerLog(engine, container, {
        tail: 10,
        signal: reader.signal,
      })) {
        seen.push(...lines.map(({ text }) => text));
      }
    })();
    await eventually(() => assert.deepEqual(seen, ["first"]));
    const exec = (
      await engineNow().request("POST", `/containers/${id}/exec`, { Cmd: ["/bin/touch", "/go"] })
    ).expect(201);
    await engineNow().request("POST", `/exec/${(exec as { Id: string }).Id}/start`, { Detach: true });
    await eventually(() => assert.deepEqual(seen, ["first", "second"]));
    reader.abort();
    await following;
    const untilEnd = followContainerLog(engine, container, { tail: 0, signal: new AbortController().signal });
    const ended = untilEnd.next();
    (await engineNow().request("POST", `/containers/${id}/kill`)).expect(204);
    t.true((await ended).done);
  },
);

dockerTest(`a followed log ends with the engine and reports it${needsDocker}`, async (t) => {
  await using dying = await startEngine();
  await using engine = createDockerEngine({ socket: dying.socket });
  await dying.images.build("svc/log:1");
  const id = await dying.run("followed", {
    Image: "svc/log:1",
    Cmd: ["/bin/sh", "-c", "echo one; sleep 3600"],
  });
  const signal = new AbortController().signal;
  const lines = followContainerLog(engine, { id, hasTerminal: false }, { tail: 10, signal });
  t.is((await lines.next()).value?.lines[0]?.text, "one");
  const next = lines.next();
  await dying.kill();
  const error = await t.throwsAsync(next, { instanceOf: SvcError });
  t.is(error.code, "unavailable");
});

dockerTest(`a missing container has no log${needsDocker}`, async (t) => {
  await using engine = createDockerEngine({ socket: engineNow().socket });
  const error = await t.throwsAsync(
    readContainerLog(engine, { id: "nobody", hasTerminal: false }, { tail: 1 }),
    { instanceOf: SvcError },
  );
  t.is(error.code, "not_found");
});
