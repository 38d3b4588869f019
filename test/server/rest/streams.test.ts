import { create, type DescMessage, type Message } from "@bufbuild/protobuf";
import test from "ava";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { setTimeout as delay } from "node:timers/promises";
import { SvcError } from "../../../src/errors.ts";
import { loadTestContract } from "./support/contract.ts";
import { messageOf, startRestServer, type Protocol, type RestServer } from "./support/rest-server.ts";
import { nextEvent } from "../../support/eventually.ts";

const contract = await loadTestContract();
const fileType = contract.registry.getMessage("svc.test.v1.File") as DescMessage;
const httpBodyType = contract.registry.getMessage("google.api.HttpBody") as DescMessage;
const protocols = ["HTTP/1.1", "h2c"] as const satisfies Protocol[];

interface File {
  path: string;
  overwrite: boolean;
  content?: { contentType: string; data: Uint8Array };
}

function fileChunk(data: Uint8Array | string, contentType = ""): Message {
  const content = create(httpBodyType, { contentType, data: Buffer.from(data) });
  return create(fileType, { content });
}

async function* only(...messages: Message[]): AsyncGenerator<Message> {
  for (const message of messages) yield await Promise.resolve(message);
}

/** Opens a request whose body and response the test controls. */
async function open(
  protocol: Protocol,
  server: RestServer,
  { method, path, hasBody }: { method: string; path: string; hasBody: boolean },
): Promise<{ stream: http.ClientRequest | http2.ClientHttp2Stream; close: () => void }> {
  if (protocol === "HTTP/1.1") {
    const request = http.request({ port: server.port, host: "127.0.0.1", method, path, agent: false });
    request.on("error", () => undefined);
    if (hasBody) request.flushHeaders();
    else request.end();
    return { stream: request, close: () => request.destroy() };
  }
  const session = http2.connect(`http://127.0.0.1:${server.port}`);
  const stream = session.request({ ":method": method, ":path": path }, { endStream: !hasBody });
  stream.on("error", () => undefined);
  await once(session, "connect");
  return { stream, close: () => session.destroy() };
}

/** Opens a download and waits for its headers. */
async function openDownload(protocol: Protocol, server: RestServer) {
  const opened = await open(protocol, server, { method: "GET", path: "/v1/files/a", hasBody: false });
  const [response] = (await nextEvent(opened.stream, "response")) as [http.IncomingMessage];
  return { ...opened, response };
}

function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener("abort", () => resolve(signal.reason));
  });
}

for (const protocol of protocols) {
  test(`${protocol}: an upload may have any content type, and its first message has path and query`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const body = Buffer.alloc(300_000, "x");
    const headers = { "content-type": "image/png" };
    const response = await server.send({ method: "PUT", path: "/v1/files/a%2Fb?overwrite=1", headers, body });
    t.is(response.status, 200);
    const chunks = server.pipeline.chunks as (Message & File)[];
    const [first, second] = chunks;
    t.like(first, { path: "a/b", overwrite: true });
    t.is(first?.content?.contentType, "image/png");
    t.like(second, { path: "", overwrite: false });
    t.is(second?.content?.contentType, "");
    t.true(Buffer.concat(chunks.map((chunk) => chunk.content?.data ?? Buffer.alloc(0))).equals(body));
  });

  test(`${protocol}: an empty upload is one message without bytes`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    t.is((await server.send({ method: "PUT", path: "/v1/files/a" })).status, 200);
    t.deepEqual(
      (server.pipeline.chunks as (Message & File)[]).map((chunk) => [chunk.path, chunk.content?.data.length]),
      [["a", 0]],
    );
  });

  test(`${protocol}: an upload has no size limit`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes, { maxBodyBytes: 10 });
    t.is(
      (await server.send({ method: "PUT", path: "/v1/files/a", body: Buffer.alloc(2_000_000) })).status,
      200,
    );
  });

  test(`${protocol}: a raw body of a unary call has a size limit`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes, { maxBodyBytes: 10 });
    const headers = { "content-type": "text/plain" };
    t.is(
      (await server.send({ method: "PUT", path: "/v1/small/a", headers, body: "0123456789" })).status,
      200,
    );
    t.deepEqual(server.pipeline.message, {
      path: "a",
      content: { contentType: "text/plain", data: Buffer.from("0123456789").toString("base64") },
    });
    t.is((await server.send({ method: "PUT", path: "/v1/small/a", body: "0123456789a" })).status, 413);
  });

  test(`${protocol}: a handler can reject an upload before its end, and the connection stays open`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.upload = async (messages) => {
      for await (const _ of messages) throw new SvcError("protected", "not this file");
    };
    const response = await server.send({ method: "PUT", path: "/v1/files/a", body: Buffer.alloc(500_000) });
    t.is(response.status, 403);
    t.is((JSON.parse(response.body.toString()) as { reason: string }).reason, "protected");
    t.is((await server.send({ method: "GET", path: "/v1/kinds" })).status, 200);
  });

  test(`${protocol}: an upload is not read faster than the handler consumes it`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    let received = 0;
    server.pipeline.upload = async (messages) => {
      for await (const message of messages) {
        received += (message as Message & File).content?.data.length ?? 0;
        await held;
      }
    };
    const { stream, close } = await open(protocol, server, {
      method: "PUT",
      path: "/v1/files/a",
      hasBody: true,
    });
    const total = 64 * 1024 * 1024;
    stream.end(Buffer.alloc(total));
    await delay(300);
    t.true(received < 1024 * 1024, `a waiting handler received ${received} bytes`);
    release();
    await nextEvent(stream, "response");
    t.is(received, total);
    close();
  });

  test(`${protocol}: a client that disconnects during an upload ends the handler's loop and aborts its signal`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const outcome = new Promise<unknown[]>((resolve) => {
      server.pipeline.upload = async (messages, call) => {
        const gone = aborted(call.signal);
        try {
          for await (const _ of messages) await delay(1);
          resolve(["ended as if complete"]);
        } catch (error) {
          resolve([error, await gone]);
          throw error;
        }
      };
    });
    const called = server.pipeline.nextCall();
    const { stream, close } = await open(protocol, server, {
      method: "PUT",
      path: "/v1/files/a",
      hasBody: true,
    });
    stream.write(Buffer.alloc(1000));
    await called;
    close();
    for (const error of await outcome) t.like(error, { code: "canceled" });
  });

  test(`${protocol}: a download has the content type of its first message and exactly its bytes`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = (_method, _message, call) => {
      call.responseHeader.set("content-length", "6");
      return only(fileChunk("abc", "text/css"), fileChunk("def", "text/html"));
    };
    const response = await server.send({ method: "GET", path: "/v1/files/a" });
    t.is(response.body.toString(), "abcdef");
    t.like(response.headers, {
      "content-type": "text/css",
      "content-length": "6",
      "x-content-type-options": "nosniff",
    });
  });

  test(`${protocol}: a download without messages is an empty octet stream`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = () => only();
    const response = await server.send({ method: "GET", path: "/v1/files/a" });
    t.is(response.status, 200);
    t.is(response.body.length, 0);
    t.is(response.headers["content-type"], "application/octet-stream");
  });

  test(`${protocol}: a response with a content range has status 206`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = (_method, _message, call) => {
      call.responseHeader.set("content-range", "bytes 1-2/3");
      return only(fileChunk("bc"));
    };
    t.is((await server.send({ method: "GET", path: "/v1/files/a" })).status, 206);
  });

  test(`${protocol}: HEAD returns the headers of a download and ends its stream`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    let ended = false;
    server.pipeline.stream = async function* (_method, _message, call) {
      try {
        call.responseHeader.set("content-length", "3");
        yield await Promise.resolve(fileChunk("abc", "text/css"));
        yield fileChunk("never");
      } finally {
        ended = true;
      }
    };
    const response = await server.send({ method: "HEAD", path: "/v1/files/a" });
    t.is(response.body.length, 0);
    t.like(response.headers, { "content-type": "text/css", "content-length": "3" });
    t.true(ended);
  });

  test(`${protocol}: an error before the first message sets the status`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    // eslint-disable-next-line require-yield -- fails before the first message
    server.pipeline.stream = async function* () {
      await Promise.resolve();
      throw new SvcError("not_found", "no such file");
    };
    const response = await server.send({ method: "GET", path: "/v1/files/a" });
    t.is(response.status, 404);
    t.is(response.headers["content-type"], "application/json");
  });

  test(`${protocol}: an error after the first message closes the response early`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = async function* () {
      yield await Promise.resolve(fileChunk("abc"));
      await delay(20);
      throw new SvcError("internal", "the disk is gone");
    };
    const { stream, response, close } = await openDownload(protocol, server);
    const incoming = protocol === "HTTP/1.1" ? response : (stream as http2.ClientHttp2Stream);
    incoming.on("error", () => undefined).resume();
    await new Promise((resolve) => incoming.on("close", resolve));
    if (protocol === "HTTP/1.1") t.false(response.complete);
    else t.not((stream as http2.ClientHttp2Stream).rstCode, http2.constants.NGHTTP2_NO_ERROR);
    close();
  });

  test(`${protocol}: a download is not produced faster than the client reads`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    let produced = 0;
    const chunk = fileChunk(Buffer.alloc(64 * 1024));
    const ended = new Promise<unknown>((resolve) => {
      server.pipeline.stream = async function* (_method, _message, call) {
        try {
          for (;;) {
            produced += 64 * 1024;
            yield await Promise.resolve(chunk);
          }
        } finally {
          resolve(await aborted(call.signal));
        }
      };
    });
    const { response, close } = await openDownload(protocol, server);
    if (protocol === "HTTP/1.1") response.on("error", () => undefined).pause();
    await delay(300);
    const before = produced;
    t.true(before < 32 * 1024 * 1024, `${before} bytes were produced although the client does not read`);
    await delay(200);
    t.is(produced, before);
    close();
    t.like(await ended, { code: "canceled" });
  });

  test(`${protocol}: a handler may reuse a chunk's memory when the next chunk is requested`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const chunks = 100;
    server.pipeline.stream = async function* () {
      // Small enough that a stream accepts several chunks before it applies backpressure.
      const data = Buffer.alloc(10_000);
      for (let n = 0; n < chunks; n++) {
        data.fill(n);
        yield await Promise.resolve(create(fileType, { content: create(httpBodyType, { data }) }));
      }
      data.fill(255);
    };
    const { stream, response, close } = await openDownload(protocol, server);
    const incoming = protocol === "HTTP/1.1" ? response : (stream as http2.ClientHttp2Stream);
    const received: Buffer[] = [];
    for await (const chunk of incoming) {
      received.push(chunk as Buffer);
      await delay(1);
    }
    const expected = Buffer.concat(Array.from({ length: chunks }, (_, n) => Buffer.alloc(10_000, n)));
    t.true(Buffer.concat(received).equals(expected));
    close();
  });

  test(`${protocol}: a unary method can return raw bytes`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.respond = () =>
      create(httpBodyType, { contentType: "image/png", data: Buffer.from("png") });
    const response = await server.send({ method: "GET", path: "/v1/small/a" });
    t.is(response.headers["content-type"], "image/png");
    t.is(response.body.toString(), "png");
  });

  test(`${protocol}: a stream without raw bytes is one line of JSON per message`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const child = { choiceText: "a" };
    server.pipeline.stream = () =>
      only(messageOf(contract.kinds, { text: "one\ntwo", child }), messageOf(contract.kinds, {}));
    const response = await server.send({ method: "GET", path: "/v1/watch" });
    t.is(response.headers["content-type"], "application/x-ndjson");
    const lines = response.body.toString().split("\n");
    t.is(lines.pop(), "");
    t.deepEqual(
      lines.map((line) => (JSON.parse(line) as { text: string }).text),
      ["one\ntwo", ""],
    );
  });

  test(`${protocol}: a client that disconnects aborts the signal of a unary call`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const outcome = new Promise<unknown>((resolve) => {
      server.pipeline.respond = async (_method, message, call) => {
        resolve(await aborted(call.signal));
        return message;
      };
    });
    const called = server.pipeline.nextCall();
    const { close } = await open(protocol, server, { method: "GET", path: "/v1/kinds", hasBody: false });
    await called;
    close();
    t.like(await outcome, { code: "canceled" });
  });

  test(`${protocol}: a stopping daemon aborts the signals of running and later calls, not of finished ones`, async (t) => {
    const shutdown = new AbortController();
    await using server = await startRestServer(protocol, contract.routes, {
      shutdownSignal: shutdown.signal,
    });
    const signals: AbortSignal[] = [];
    server.pipeline.respond = async (_method, message, call) => {
      signals.push(call.signal);
      if (signals.length === 2) throw await aborted(call.signal);
      return message;
    };
    await server.send({ method: "GET", path: "/v1/kinds" });
    const called = server.pipeline.nextCall();
    const pending = server.send({ method: "GET", path: "/v1/kinds" });
    await called;
    shutdown.abort(new SvcError("unavailable", "the daemon is stopping"));
    t.is((await pending).status, 503);
    t.deepEqual(
      signals.map((signal) => signal.aborted),
      [false, true],
    );
    t.is((await server.send({ method: "GET", path: "/v1/kinds" })).status, 200);
    t.true(signals[2]?.aborted, "a later call is aborted, too");
  });
}
