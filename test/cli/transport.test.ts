import test from "ava";
import fc from "fast-check";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SvcError } from "../../src/errors.ts";
import { ResponseParser } from "../../src/cli/client/response-parser.ts";
import { calls } from "../../src/cli/client/calls.ts";
import { encodeEnvelope, readEnvelopes } from "../../src/cli/client/envelope.ts";
import { readAll, send } from "../../src/cli/client/http.ts";
import { bindRequest } from "../../src/cli/client/rest-client.ts";
import { restError } from "../../src/cli/client/rest-error.ts";
import { nextEvent } from "../support/eventually.ts";

test("a request fills the path first, then the query or the body", (t) => {
  t.deepEqual(bindRequest(calls.getAppLogs, { id: "a/b", tail: 5, timestamps: true }), {
    path: "/v1/apps/a%2Fb/logs?tail=5&timestamps=true",
    body: undefined,
  });
  t.deepEqual(bindRequest(calls.getAppStats, { ids: ["a", "b&c"] }), {
    path: "/v1/stats?ids=a&ids=b%26c",
    body: undefined,
  });
  t.deepEqual(bindRequest(calls.updateAppSettings, { id: "a", values: { x: 1 } }), {
    path: "/v1/apps/a/settings",
    body: '{"values":{"x":1}}',
  });
});

const answers = {
  "content-length": ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200],
  chunked: [
    "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nA: b\r\n\r\n",
    404,
  ],
  "until the end": ["HTTP/1.0 200\r\n\r\nhello", 200],
  "after a 100": ["HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200],
} as const;

for (const [name, [text, status]] of Object.entries(answers)) {
  test(`a response (${name}) is read wherever its bytes are split`, (t) => {
    const bytes = Buffer.from(text);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: bytes.length }), { maxLength: 8 }), (cuts) => {
        const parser = new ResponseParser();
        const body: Buffer[] = [];
        let from = 0;
        for (const to of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
          body.push(...parser.write(bytes.subarray(from, to)));
          from = to;
        }
        parser.end();
        t.is(parser.status, status);
        t.is(Buffer.concat(body).toString(), "hello");
      }),
    );
  });
}

for (const text of [
  "",
  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
]) {
  test(`an incomplete response is an error: ${JSON.stringify(text)}`, (t) => {
    const parser = new ResponseParser();
    parser.write(Buffer.from(text));
    t.is(t.throws(() => parser.end(), { instanceOf: SvcError }).code, "unavailable");
  });
}

for (const text of [
  "SSH-2.0-x\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
  "x".repeat(70_000),
]) {
  test(`data that is not HTTP is an error: ${JSON.stringify(text.slice(0, 40))}`, (t) => {
    const error = t.throws(() => new ResponseParser().write(Buffer.from(text)), { instanceOf: SvcError });
    t.is(error.code, "unavailable");
  });
}

test("envelopes are read wherever their bytes are split", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.uint8Array({ maxLength: 20 })),
      fc.integer({ min: 1, max: 7 }),
      async (messages, size) => {
        const bytes = Buffer.concat(messages.map((message) => encodeEnvelope(0, message)));
        const seen: Uint8Array[] = [];
        for await (const { data } of readEnvelopes(chunksOf(bytes, size))) seen.push(new Uint8Array(data));
        t.deepEqual(seen, messages);
      },
    ),
  );
});

async function* chunksOf(bytes: Buffer, size: number): AsyncIterable<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

test("a compressed or oversized envelope is an error", async (t) => {
  for (const bytes of [Buffer.from([1, 0, 0, 0, 0]), Buffer.from([0, 255, 255, 255, 255])]) {
    await t.throwsAsync(
      async () => {
        for await (const _ of readEnvelopes(chunksOf(bytes, 5)));
      },
      { instanceOf: SvcError },
    );
  }
});

/** A separate process: one that shares the event loop never runs between two writes. */
const hastyDaemon = `
require("node:net").createServer((socket) => {
  socket.on("error", () => undefined);
  socket.once("data", () => socket.end("HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok").destroySoon());
}).listen(process.argv[1], () => console.log("ready"));`;

for (const body of [new Uint8Array(), new TextEncoder().encode("{}")]) {
  test(`the response of a daemon that closes the connection at once is read (body of ${body.length} bytes)`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-http-"));
    const socketPath = join(directory, "s");
    const daemon = spawn(process.execPath, ["-e", hastyDaemon, socketPath], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    t.teardown(async () => {
      daemon.kill("SIGKILL");
      await rm(directory, { recursive: true });
    });
    await nextEvent(daemon.stdout, "data");
    for (let attempt = 0; attempt < 200; attempt++) {
      const answer = await send({ socketPath, headers: {} }, { method: "POST", path: "/", body });
      t.is((await readAll(answer)).toString(), "ok");
    }
  });
}

test("a slow reader slows the daemon down", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "svc-http-"));
  let sent = 0;
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.write("HTTP/1.1 200 OK\r\n\r\n");
    const block = Buffer.alloc(256 * 1024);
    const push = (): void => {
      while (!socket.destroyed && sent < 64 * 1024 * 1024) {
        sent += block.length;
        if (!socket.write(block)) return void socket.once("drain", push);
      }
    };
    push();
  });
  const socketPath = join(directory, "s");
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const answer = await send({ socketPath, headers: {} }, { method: "GET", path: "/" });
  await new Promise((resolve) => setTimeout(resolve, 200));
  t.true(sent < 8 * 1024 * 1024, `${sent} bytes were taken`);
  answer.destroy();
  await new Promise((resolve) => server.close(resolve));
  await rm(directory, { recursive: true });
});

test("a daemon that closes the connection is reported as unavailable", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "svc-http-"));
  const server = createServer((socket) => void socket.destroy());
  const socketPath = join(directory, "s");
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const error = await t.throwsAsync(
    async () => readAll(await send({ socketPath, headers: {} }, { method: "GET", path: "/" })),
    { instanceOf: SvcError },
  );
  t.is(error.code, "unavailable");
  await new Promise((resolve) => server.close(resolve));
  await rm(directory, { recursive: true });
});

test("a REST error keeps its code, reason and payload", (t) => {
  const error = restError(
    409,
    JSON.stringify({
      error: "it failed",
      code: "failed_precondition",
      reason: "build_failed",
      build_failed: { exit_code: 2, last_lines: ["x"] },
    }),
  );
  t.like(error, {
    message: "it failed",
    code: "failed_precondition",
    reason: "build_failed",
    payload: { exitCode: 2, lastLines: ["x"] },
  });
  t.is(restError(502, "<html>").code, "unavailable");
});
