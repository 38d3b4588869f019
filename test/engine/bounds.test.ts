/** Limits of what an engine, a registry and a container's log may send (docs/threat-model.md). */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import test from "ava";
import { ScopedModem } from "../../src/engine/scoped-modem.ts";
import { readEvents } from "../../src/engine/event-stream.ts";
import { FramedLogReader } from "../../src/engine/log-lines.ts";
import { remoteImage } from "../../src/engine/registry-client.ts";
import { readMessages } from "../../src/runtimes/docker/engine-messages.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { readResolved } from "../../src/runtimes/compose/compose-document.ts";
import { programs } from "../support/programs.ts";
import { nextEvent } from "../support/eventually.ts";

const mib = 1024 * 1024;

/** Chunks of an endless response; reports how many were read. */
class Endless {
  taken = 0;

  *[Symbol.iterator](): Generator<Buffer> {
    for (; this.taken < 1_000; this.taken++) yield Buffer.alloc(mib, "a");
  }
}

test("an endless progress message is not buffered", async (t) => {
  const pieces = new Endless();
  await t.throwsAsync(async () => Array.fromAsync(readMessages(Readable.from(pieces))), {
    message: /progress messages/,
  });
  t.true(pieces.taken < 50, String(pieces.taken));
});

test("an event that is too long is skipped without losing others", async (t) => {
  const event = (action: string): string => `${JSON.stringify({ Type: "container", Action: action })}\n`;
  const long = event(`exec_create: ${"a".repeat(2 * mib)}`);
  function* pieces(): Generator<Buffer> {
    yield Buffer.from(event("start"));
    for (let at = 0; at < long.length; at += 65_536) yield Buffer.from(long.slice(at, at + 65_536));
    yield Buffer.from(event("die"));
  }
  const events = await Array.fromAsync(readEvents(Readable.from(pieces())));
  t.deepEqual(
    events.map(({ action }) => action),
    ["start", "die"],
  );
});

test("a log frame that declares too much is rejected at its header", (t) => {
  const reader = new FramedLogReader();
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(2 * mib + 1, 4);
  t.throws(() => reader.read(head), { message: /not framed/ });
});

test("an endless log line arrives in pieces", (t) => {
  const reader = new FramedLogReader();
  const text = Buffer.alloc(mib, "a");
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(text.length, 4);
  const lines = reader.read(Buffer.concat([head, text]));
  t.true(lines.length >= 15);
  for (const line of lines) t.true(line.text.length <= 64 * 1024);
});

/** Responds with `answer` at a socket, or at a loopback port. */
async function serve(answer: RequestListener, path?: string) {
  const server = createServer(answer);
  await once(path === undefined ? server.listen(0, "127.0.0.1") : server.listen(path), "listening");
  return {
    port: path === undefined ? (server.address() as AddressInfo).port : 0,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

test("an endless response of the engine is not buffered", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-engine-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const socketPath = join(dir, "engine.sock");
  const pieces = new Endless();
  await using _ = await serve((_request, response) => void Readable.from(pieces).pipe(response), socketPath);
  const modem = new ScopedModem({ socketPath, version: "1.41", signal: AbortSignal.timeout(60_000) });
  const asked = Promise.withResolvers<unknown>();
  modem.dial({ path: "/info", method: "GET", statusCodes: { 200: true } }, (error, data) =>
    error === null ? asked.resolve(data) : asked.reject(error),
  );
  await t.throwsAsync(asked.promise, { message: /bytes|large|long/ });
  t.true(pieces.taken < 200, String(pieces.taken));
});

test("an endless manifest or token of a registry is not buffered", async (t) => {
  const platform = { os: "linux", architecture: "amd64", variant: "" };
  const image = (port: number): string => `127.0.0.1:${port}/svc/app:1`;
  for (const isToken of [false, true]) {
    const pieces = new Endless();
    await using registry = await serve((request, response) => {
      const realm = `Bearer realm="http://${request.headers.host ?? ""}/token",service="s"`;
      if (isToken && request.url?.startsWith("/v2") === true) {
        response.writeHead(401, { "www-authenticate": realm }).end();
      } else if (request.method === "HEAD") response.end();
      else Readable.from(pieces).pipe(response);
    });
    await t.throwsAsync(remoteImage(image(registry.port), { platform, timeoutMs: 60_000 }));
    t.true(pieces.taken > 0 && pieces.taken < 50, String(pieces.taken));
  }
});

test("a registry manifest with many elements in few bytes is not parsed", async (t) => {
  const platform = { os: "linux", architecture: "amd64", variant: "" };
  const type = "application/vnd.oci.image.index.v1+json";
  for (const [lists, message] of [
    [40_000, /cannot be reached/],
    [4, /but not for linux/],
  ] as const) {
    await using registry = await serve((_request, response) => {
      const json = `{"manifests":[],"more":[${Array(lists).fill("[]").join(",")}]}`;
      response.writeHead(200, { "content-type": type }).end(json);
    });
    await t.throwsAsync(
      remoteImage(`127.0.0.1:${registry.port}/svc/app:1`, { platform, timeoutMs: 60_000 }),
      {
        message,
      },
    );
  }
});

test("a resolved project of more than two mebibytes is rejected", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  const read = (text: string) =>
    readResolved(text, "compose.yaml", (document, bounds) => thread.read(document, bounds, 0));
  await t.throwsAsync(read(`a: ${"b".repeat(2 * mib)}`), { message: /^compose.yaml: / });
  await t.throwsAsync(read(`a: [${"b,".repeat(60_000)}]`), { message: /100000 YAML tokens/ });
  t.like(await read("a: b"), { a: "b" });
});
