/** A daemon behind https, and servers that are not one. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createSecureServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import { connect, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";
import test from "ava";
import { RemoteDaemon } from "../../src/cli/nodes/remote-daemon.ts";
import { openNetwork } from "../../src/cli/nodes/network-stream.ts";
import { readAll } from "../../src/cli/client/http.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { runSvc, type SvcRun } from "./support/run-svc.ts";
import { nextEvent } from "../support/eventually.ts";

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
  t.is(absent.stderr, "svc: the CA file /nonexistent cannot be read: it does not exist\n");
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
