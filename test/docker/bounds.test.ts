/** What an engine, a registry and a container's log may send at most (docs/threat-model.md). */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import test from "ava";
import { ScopedModem } from "../../src/docker/scoped-modem.ts";
import { readEvents } from "../../src/docker/event-stream.ts";
import { FramedLogReader } from "../../src/docker/log-lines.ts";
import { remoteImage } from "../../src/docker/registry-client.ts";
import { readMessages } from "../../src/runtimes/docker/engine-messages.ts";
import { YamlThread } from "../../src/packages/yaml-thread.ts";
import { readResolved } from "../../src/runtimes/compose/compose-document.ts";
import { programs } from "../support/programs.ts";

const mib = 1024 * 1024;

/** Pieces of an answer that goes on and on; says how many were taken. */
class Endless {
  taken = 0;

  *[Symbol.iterator](): Generator<Buffer> {
    for (; this.taken < 1_000; this.taken++) yield Buffer.alloc(mib, "a");
  }
}

test("a message of progress that does not end is not kept", async (t) => {
  const pieces = new Endless();
  await t.throwsAsync(async () => Array.fromAsync(readMessages(Readable.from(pieces))), {
    message: /no progress/,
  });
  t.true(pieces.taken < 50, String(pieces.taken));
});

test("an event that is longer than any is left out, and nobody misses the others", async (t) => {
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

test("a frame of a log that says to be longer than any is refused at its head", (t) => {
  const reader = new FramedLogReader();
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(2 * mib + 1, 4);
  t.throws(() => reader.read(head), { message: /no frames/ });
});

test("a line of a log that does not end comes in pieces", (t) => {
  const reader = new FramedLogReader();
  const text = Buffer.alloc(mib, "a");
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(text.length, 4);
  const lines = reader.read(Buffer.concat([head, text]));
  t.true(lines.length >= 15);
  for (const line of lines) t.true(line.text.length <= 64 * 1024);
});

/** Answers with `answer` at a socket, or at a port of loopback. */
async function serve(answer: RequestListener, path?: string) {
  const server = createServer(answer);
  await once(path === undefined ? server.listen(0, "127.0.0.1") : server.listen(path), "listening");
  return {
    port: path === undefined ? (server.address() as AddressInfo).port : 0,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

test("an answer of the engine that does not end is not kept", async (t) => {
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

test("a manifest and a token of a registry that do not end are not kept", async (t) => {
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

test("a manifest of a registry that is much in few bytes is not parsed", async (t) => {
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

test("a resolved project of more than two mebibytes is refused", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  const read = (text: string) =>
    readResolved(text, "compose.yaml", (document, bounds) => thread.read(document, bounds, 0));
  await t.throwsAsync(read(`a: ${"b".repeat(2 * mib)}`), { message: /^compose.yaml: / });
  await t.throwsAsync(read(`a: [${"b,".repeat(60_000)}]`), { message: /100000 YAML tokens/ });
  t.like(await read("a: b"), { a: "b" });
});
