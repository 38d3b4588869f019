import { create, type DescMessage, type Message } from "@bufbuild/protobuf";
import test from "ava";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { setTimeout as delay } from "node:timers/promises";
import { SvcError } from "../../src/errors.ts";
import { loadTestContract } from "./support/contract.ts";
import { messageOf, startRestServer, type Protocol, type RestServer } from "./support/rest-server.ts";

const contract = await loadTestContract();
const fileType = contract.registry.getMessage("svc.test.v1.File") as DescMessage;
const httpBodyType = contract.registry.getMessage("google.api.HttpBody") as DescMessage;
const protocols = ["HTTP/1.1", "h2c"] as const satisfies Protocol[];

interface File {
  path: string;
  overwrite: boolean;
  content?: { contentType: string; data: Uint8Array };
}

function filePiece(data: Uint8Array | string, contentType = ""): Message {
  const content = create(httpBodyType, { contentType, data: Buffer.from(data) });
  return create(fileType, { content });
}

async function* only(...messages: Message[]): AsyncGenerator<Message> {
  for (const message of messages) yield await Promise.resolve(message);
}

/** A request whose body and answer the test drives by hand. */
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

/** A download whose answer has begun. */
async function openDownload(protocol: Protocol, server: RestServer) {
  const opened = await open(protocol, server, { method: "GET", path: "/v1/files/a", hasBody: false });
  const [response] = (await once(opened.stream, "response")) as [http.IncomingMessage];
  return { ...opened, response };
}

function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    else signal.addEventListener("abort", () => resolve(signal.reason));
  });
}

for (const protocol of protocols) {
  test(`${protocol}: an upload takes any content type; path and query ride in the first message`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const body = Buffer.alloc(300_000, "x");
    const headers = { "content-type": "image/png" };
    const answer = await server.send({ method: "PUT", path: "/v1/files/a%2Fb?overwrite=1", headers, body });
    t.is(answer.status, 200);
    const pieces = server.pipeline.pieces as (Message & File)[];
    const [first, second] = pieces;
    t.like(first, { path: "a/b", overwrite: true });
    t.is(first?.content?.contentType, "image/png");
    t.like(second, { path: "", overwrite: false });
    t.is(second?.content?.contentType, "");
    t.true(Buffer.concat(pieces.map((piece) => piece.content?.data ?? Buffer.alloc(0))).equals(body));
  });

  test(`${protocol}: an empty upload is one message without bytes`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    t.is((await server.send({ method: "PUT", path: "/v1/files/a" })).status, 200);
    t.deepEqual(
      (server.pipeline.pieces as (Message & File)[]).map((piece) => [piece.path, piece.content?.data.length]),
      [["a", 0]],
    );
  });

  test(`${protocol}: an upload has no bound on its size`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes, { maxBodyBytes: 10 });
    t.is(
      (await server.send({ method: "PUT", path: "/v1/files/a", body: Buffer.alloc(2_000_000) })).status,
      200,
    );
  });

  test(`${protocol}: an unary raw body has one`, async (t) => {
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

  test(`${protocol}: a handler that refuses an upload half-way answers, and the connection goes on`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.upload = async (messages) => {
      for await (const _ of messages) throw new SvcError("protected", "not this file");
    };
    const answer = await server.send({ method: "PUT", path: "/v1/files/a", body: Buffer.alloc(500_000) });
    t.is(answer.status, 403);
    t.is((JSON.parse(answer.body.toString()) as { reason: string }).reason, "protected");
    t.is((await server.send({ method: "GET", path: "/v1/kinds" })).status, 200);
  });

  test(`${protocol}: an upload is read no faster than the handler takes it`, async (t) => {
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
    t.true(received < 1024 * 1024, `${received} bytes were taken by a handler that stands still`);
    release();
    await once(stream, "response");
    t.is(received, total);
    close();
  });

  test(`${protocol}: a client that goes away in an upload ends the handler's loop and aborts its signal`, async (t) => {
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

  test(`${protocol}: a download has the first message's content type and no byte more`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = (_method, _message, call) => {
      call.responseHeader.set("content-length", "6");
      return only(filePiece("abc", "text/css"), filePiece("def", "text/html"));
    };
    const answer = await server.send({ method: "GET", path: "/v1/files/a" });
    t.is(answer.body.toString(), "abcdef");
    t.like(answer.headers, {
      "content-type": "text/css",
      "content-length": "6",
      "x-content-type-options": "nosniff",
    });
  });

  test(`${protocol}: a download of nothing`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = () => only();
    const answer = await server.send({ method: "GET", path: "/v1/files/a" });
    t.is(answer.status, 200);
    t.is(answer.body.length, 0);
    t.is(answer.headers["content-type"], "application/octet-stream");
  });

  test(`${protocol}: a range is a 206`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = (_method, _message, call) => {
      call.responseHeader.set("content-range", "bytes 1-2/3");
      return only(filePiece("bc"));
    };
    t.is((await server.send({ method: "GET", path: "/v1/files/a" })).status, 206);
  });

  test(`${protocol}: HEAD of a download has its headers and ends its stream`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    let ended = false;
    server.pipeline.stream = async function* (_method, _message, call) {
      try {
        call.responseHeader.set("content-length", "3");
        yield await Promise.resolve(filePiece("abc", "text/css"));
        yield filePiece("never");
      } finally {
        ended = true;
      }
    };
    const answer = await server.send({ method: "HEAD", path: "/v1/files/a" });
    t.is(answer.body.length, 0);
    t.like(answer.headers, { "content-type": "text/css", "content-length": "3" });
    t.true(ended);
  });

  test(`${protocol}: an error before the first message has its status`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    // eslint-disable-next-line require-yield -- fails before anything comes
    server.pipeline.stream = async function* () {
      await Promise.resolve();
      throw new SvcError("not_found", "no such file");
    };
    const answer = await server.send({ method: "GET", path: "/v1/files/a" });
    t.is(answer.status, 404);
    t.is(answer.headers["content-type"], "application/json");
  });

  test(`${protocol}: an error after it breaks the answer off`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.stream = async function* () {
      yield await Promise.resolve(filePiece("abc"));
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

  test(`${protocol}: a download is produced no faster than the client reads`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    let produced = 0;
    const piece = filePiece(Buffer.alloc(64 * 1024));
    const ended = new Promise<unknown>((resolve) => {
      server.pipeline.stream = async function* (_method, _message, call) {
        try {
          for (;;) {
            produced += 64 * 1024;
            yield await Promise.resolve(piece);
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
    t.true(before < 32 * 1024 * 1024, `${before} bytes were produced for a client that reads nothing`);
    await delay(200);
    t.is(produced, before);
    close();
    t.like(await ended, { code: "canceled" });
  });

  test(`${protocol}: a download's memory is the handler's again when it is asked for more`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const pieces = 100;
    server.pipeline.stream = async function* () {
      // Small enough for a stream to take several of them before it asks to wait.
      const data = Buffer.alloc(10_000);
      for (let n = 0; n < pieces; n++) {
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
    const expected = Buffer.concat(Array.from({ length: pieces }, (_, n) => Buffer.alloc(10_000, n)));
    t.true(Buffer.concat(received).equals(expected));
    close();
  });

  test(`${protocol}: a raw answer of an unary method`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.answer = () =>
      create(httpBodyType, { contentType: "image/png", data: Buffer.from("png") });
    const answer = await server.send({ method: "GET", path: "/v1/small/a" });
    t.is(answer.headers["content-type"], "image/png");
    t.is(answer.body.toString(), "png");
  });

  test(`${protocol}: other streams are a line of JSON for each message`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const child = { choiceText: "a" };
    server.pipeline.stream = () =>
      only(messageOf(contract.kinds, { text: "one\ntwo", child }), messageOf(contract.kinds, {}));
    const answer = await server.send({ method: "GET", path: "/v1/watch" });
    t.is(answer.headers["content-type"], "application/x-ndjson");
    const lines = answer.body.toString().split("\n");
    t.is(lines.pop(), "");
    t.deepEqual(
      lines.map((line) => (JSON.parse(line) as { text: string }).text),
      ["one\ntwo", ""],
    );
  });

  test(`${protocol}: a client that goes away ends a unary call's signal`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const outcome = new Promise<unknown>((resolve) => {
      server.pipeline.answer = async (_method, message, call) => {
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

  test(`${protocol}: the end of the daemon ends every call's signal, a finished call's not`, async (t) => {
    const shutdown = new AbortController();
    await using server = await startRestServer(protocol, contract.routes, {
      shutdownSignal: shutdown.signal,
    });
    const signals: AbortSignal[] = [];
    server.pipeline.answer = async (_method, message, call) => {
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
    t.true(signals[2]?.aborted, "a call that begins after it too");
  });
}
