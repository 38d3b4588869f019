/** Attaching to a container that exits at the same time. */
import assert from "node:assert/strict";
import { PassThrough, type Duplex } from "node:stream";
import test from "ava";
import { attachContainer, WatchedSizes } from "../../../src/engine/container-attachment.ts";
import { createDockerEngine, type DockerEngine } from "../../../src/engine/engine.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";

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
