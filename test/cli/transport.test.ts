/** The connection of the CLI to its daemon, also behind https, and servers that are not one. */
import { spawn, execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, readFile, writeFile } from "node:fs/promises";
import { createSecureServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";
import test from "ava";
import fc from "fast-check";
import { calls } from "../../src/cli/client/calls.ts";
import { encodeEnvelope, readEnvelopes } from "../../src/cli/client/envelope.ts";
import { readAll, send } from "../../src/cli/client/http.ts";
import { ResponseParser } from "../../src/cli/client/response-parser.ts";
import { bindRequest } from "../../src/cli/client/rest-client.ts";
import { restError } from "../../src/cli/client/rest-error.ts";
import { openNetwork } from "../../src/cli/nodes/network-stream.ts";
import { RemoteDaemon } from "../../src/cli/nodes/remote-daemon.ts";
import { SvcError } from "../../src/errors.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { nextEvent } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { runSvc, type SvcRun } from "./support/run-svc.ts";

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

// A daemon behind https, and servers that are not one.

interface TlsProxy extends AsyncDisposable {
  readonly port: number;
}

async function listen(server: Server): Promise<TlsProxy> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.listen(0, "localhost");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

interface Certificate {
  readonly key: Buffer;
  readonly cert: Buffer;
}

/** Writes `key.pem` and `cert.pem` to `dir`. */
async function makeCertificate(dir: string): Promise<Certificate> {
  const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  execFileSync("openssl", ["req", ...kind, ...subject, "-keyout", key, "-out", cert], { stdio: "ignore" });
  return { key: await readFile(key), cert: await readFile(cert) };
}

/** Terminates TLS in front of a daemon, like a proxy. */
async function openTlsProxy({ dir, port }: TestDaemon, protocols: string[]): Promise<TlsProxy> {
  const certificate = await makeCertificate(dir);
  return listen(
    createTlsServer({ ...certificate, ALPNProtocols: protocols }, (secure) => {
      const plain = connect(port, "127.0.0.1");
      secure.pipe(plain).pipe(secure);
      for (const socket of [secure, plain])
        socket.on("error", () => [secure, plain].map((each) => each.destroy()));
    }),
  );
}

test("every kind of call works through https, with a token from a file", async (t) => {
  await using daemon = await startDaemon();
  await using proxy = await openTlsProxy(daemon, ["h2"]);
  const token = join(daemon.dir, "token");
  await writeFile(token, daemon.token, { mode: 0o600 });
  const env = { SVC_TOKEN_FILE: token, SVC_CA_FILE: join(daemon.dir, "cert.pem") };
  const run = (args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<SvcRun> =>
    runSvc(["-H", `https://localhost:${proxy.port}`, ...args], { host: { env: { ...env, ...more } } });
  const status = await run(["status", "--json"]);
  t.is(status.exitCode, 0, status.stderr);
  await writePackage(join(daemon.dir, "package"), await freePort());
  const installed = await run(["install", join(daemon.dir, "package")]);
  t.is(installed.exitCode, 0, installed.stderr);
  await writeFile(join(daemon.dir, "here"), "a".repeat(300_000));
  const put = await run(["file", "put", join(daemon.dir, "here"), "web:data/there"]);
  t.is(put.exitCode, 0, put.stderr);
  t.is((await run(["file", "cat", "web:data/there"])).stdout, "a".repeat(300_000));
  const shell = await run(["app", "shell", "web", "--", "sh", "-c", "echo out; exit 3"]);
  t.is(shell.exitCode, 3, shell.stderr);
  t.regex(shell.stdout, /out/);

  const distrusted = await run(["ls"], { SVC_CA_FILE: "/etc/hosts" });
  t.is(distrusted.exitCode, 6, distrusted.stderr);
  const absent = await run(["ls"], { SVC_CA_FILE: "/nonexistent" });
  t.is(absent.stderr, "svc: the CA file /nonexistent cannot be read: no such file or directory\n");
  await writeFile(token, "svc_wrong");
  const denied = await run(["ls"]);
  t.is(denied.exitCode, 4);
  t.notRegex(denied.stderr, /svc_wrong/);
});

test("an untrusted certificate, a wrong name and an old protocol have different errors", async (t) => {
  await using daemon = await startDaemon();
  await using proxy = await openTlsProxy(daemon, ["h2"]);
  const token = join(daemon.dir, "token");
  await writeFile(token, daemon.token, { mode: 0o600 });
  const run = (
    host: string,
    env: Readonly<Record<string, string>> = {},
    { port }: TlsProxy = proxy,
  ): Promise<SvcRun> =>
    runSvc(["-H", `https://${host}:${port}`, "ls"], {
      host: { env: { SVC_TOKEN_FILE: token, ...env } },
    });
  const trusted = { SVC_CA_FILE: join(daemon.dir, "cert.pem") };
  t.regex((await run("localhost")).stderr, /is not signed by a trusted CA: pass its CA with --ca-file/);
  t.regex((await run("localhost.localdomain", trusted)).stderr, /is for another name|cannot be resolved/);
  await using old = await openTlsProxy(daemon, ["http/1.1"]);
  const { exitCode, stderr } = await run("localhost", trusted, old);
  t.is(exitCode, 6);
  t.regex(stderr, /does not support HTTP\/2, which svc requires/);
});

/** Responses of a hostile daemon. */
const behaviors: Readonly<Record<string, { does: (stream: ServerHttp2Stream) => void; says: RegExp }>> = {
  "breaks off in the middle": {
    does: (stream) => {
      stream.respond({ ":status": 200 });
      stream.write('{"apps":[', () => stream.destroy(new Error("broken")));
    },
    says: /ended early/,
  },
  "hangs up in the middle": {
    does: (stream) => {
      stream.respond({ ":status": 200 });
      stream.write('{"apps":[', () => stream.session?.destroy());
    },
    says: /ended early|does not respond like an svc daemon|cannot be reached/,
  },
  "sends an endless response": {
    does: (stream) => {
      stream.respond({ ":status": 200 });
      const more = (): void => {
        while (!stream.destroyed && stream.write(Buffer.alloc(1 << 20, 32)));
      };
      stream.on("drain", more);
      more();
    },
    says: /longer than 64 MiB/,
  },
  "sends a redirect": {
    does: (stream) => {
      stream.respond({ ":status": 302, location: "https://example.org" });
      stream.end("<html>\x1b[2J");
    },
    says: /is not an svc daemon: it responded with HTTP 302/,
  },
  "says nothing": { does: () => undefined, says: /took longer than 2 s/ },
};

for (const [title, { does, says }] of Object.entries(behaviors)) {
  test(`an error is reported for a remote daemon that ${title}`, async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-far-"));
    t.teardown(() => rm(dir, { recursive: true }));
    const server = createHttp2Server(await makeCertificate(dir)).on("stream", (stream) => {
      stream.on("error", () => undefined);
      does(stream);
    });
    server.on("sessionError", () => undefined);
    await using proxy = await listen(server);
    const token = join(dir, "token");
    await writeFile(token, "svc_x", { mode: 0o600 });
    const run = await runSvc(
      ["-H", `https://localhost:${proxy.port}`, "ls", "--timeout", title === "says nothing" ? "2" : "60"],
      {
        host: { env: { SVC_TOKEN_FILE: token, SVC_CA_FILE: join(dir, "cert.pem") } },
      },
    );
    t.not(run.exitCode, 0);
    t.regex(run.stderr, says);
    t.notRegex(run.stderr, /\x1b/);
  });
}

test("a server that accepts a connection and sends nothing times out", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-far-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const certificate = await makeCertificate(dir);
  await using proxy = await listen(createTlsServer({ ...certificate, ALPNProtocols: ["h2"] }));
  const address = { kind: "https", host: "localhost", port: proxy.port, authority: "localhost" } as const;
  const authorities = certificate.cert.toString();
  const far = new RemoteDaemon({
    name: "mute",
    authority: "localhost",
    scheme: "https",
    headers: {},
    greetingTimeoutMs: 300,
    open: () => openNetwork(address, { authorities, systemSocket: "/nonexistent" }),
  });
  const asked = async (): Promise<Buffer> => readAll(await far.send({ method: "GET", path: "/v1/apps" }));
  await t.throwsAsync(asked, { message: "mute did not respond within 0.3 s" });
});
