/** A daemon behind https, and what else may stand there. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer as createHttp2Server, type ServerHttp2Stream } from "node:http2";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";
import test from "ava";
import { FarDaemon } from "../../src/cli/nodes/far-daemon.ts";
import { openNetwork } from "../../src/cli/nodes/network-stream.ts";
import { readAll } from "../../src/cli/transport/http.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { runSvc, type SvcRun } from "./support/run-svc.ts";

interface Door extends AsyncDisposable {
  readonly port: number;
}

async function listen(server: Server): Promise<Door> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.listen(0, "localhost");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Ends TLS in front of a daemon, as a proxy does. */
async function openTlsDoor({ dir, port }: TestDaemon, protocols: string[]): Promise<Door> {
  const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  execFileSync("openssl", ["req", ...kind, ...subject, "-keyout", key, "-out", cert], { stdio: "ignore" });
  const certificate = { key: await readFile(key), cert: await readFile(cert) };
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
  await using door = await openTlsDoor(daemon, ["h2"]);
  const token = join(daemon.dir, "token");
  await writeFile(token, daemon.token, { mode: 0o600 });
  const env = { SVC_TOKEN_FILE: token, SVC_CA_FILE: join(daemon.dir, "cert.pem") };
  const run = (args: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<SvcRun> =>
    runSvc(["-H", `https://localhost:${door.port}`, ...args], { host: { env: { ...env, ...more } } });
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

test("a certificate of nobody's, another name and an old protocol are told apart", async (t) => {
  await using daemon = await startDaemon();
  await using door = await openTlsDoor(daemon, ["h2"]);
  const token = join(daemon.dir, "token");
  await writeFile(token, daemon.token, { mode: 0o600 });
  const run = (
    host: string,
    env: Readonly<Record<string, string>> = {},
    { port }: Door = door,
  ): Promise<SvcRun> =>
    runSvc(["-H", `https://${host}:${port}`, "ls"], {
      host: { env: { SVC_TOKEN_FILE: token, ...env } },
    });
  const trusted = { SVC_CA_FILE: join(daemon.dir, "cert.pem") };
  t.regex(
    (await run("localhost")).stderr,
    /is not from an authority that is trusted here: name its own with --ca-file/,
  );
  t.regex((await run("localhost.localdomain", trusted)).stderr, /is for another name|cannot be resolved/);
  await using old = await openTlsDoor(daemon, ["http/1.1"]);
  const { exitCode, stderr } = await run("localhost", trusted, old);
  t.is(exitCode, 6);
  t.regex(stderr, /does not speak HTTP\/2, which svc needs there/);
});

/** What a hostile daemon does once it has been asked. */
const doings: Readonly<Record<string, { does: (stream: ServerHttp2Stream) => void; says: RegExp }>> = {
  "breaks off in the middle": {
    does: (stream) => {
      stream.respond({ ":status": 200 });
      stream.write('{"apps":[', () => stream.destroy(new Error("broken")));
    },
    says: /broke off/,
  },
  "hangs up in the middle": {
    does: (stream) => {
      stream.respond({ ":status": 200 });
      stream.write('{"apps":[', () => stream.session?.destroy());
    },
    says: /broke off|answers in a way that no svc daemon does|cannot be reached/,
  },
  "answers without end": {
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
  "answers something else": {
    does: (stream) => {
      stream.respond({ ":status": 302, location: "https://example.org" });
      stream.end("<html>\x1b[2J");
    },
    says: /is no svc daemon: it says HTTP 302/,
  },
  "says nothing": { does: () => undefined, says: /took longer than 2 s/ },
};

for (const [title, { does, says }] of Object.entries(doings)) {
  test(`a daemon elsewhere that ${title}`, async (t) => {
    const server = createHttp2Server().on("stream", (stream) => {
      stream.on("error", () => undefined);
      does(stream);
    });
    server.on("sessionError", () => undefined);
    await using door = await listen(server);
    const dir = await mkdtemp(join(tmpdir(), "svc-far-"));
    t.teardown(() => rm(dir, { recursive: true }));
    const token = join(dir, "token");
    await writeFile(token, "svc_x", { mode: 0o600 });
    const run = await runSvc(
      ["-H", `http://localhost:${door.port}`, "ls", "--timeout", title === "says nothing" ? "2" : "60"],
      {
        host: { env: { SVC_TOKEN_FILE: token } },
      },
    );
    t.not(run.exitCode, 0);
    t.regex(run.stderr, says);
    t.notRegex(run.stderr, /\x1b/);
  });
}

test("who takes a connection and says nothing is given up", async (t) => {
  await using door = await listen(createServer());
  const far = new FarDaemon({
    name: "mute",
    authority: "localhost",
    scheme: "http",
    headers: {},
    greetingTimeoutMs: 300,
    open: () =>
      openNetwork({ kind: "http", host: "localhost", port: door.port, authority: "localhost" }, undefined),
  });
  const asked = async (): Promise<Buffer> => readAll(await far.send({ method: "GET", path: "/v1/apps" }));
  await t.throwsAsync(asked, { message: "mute did not answer within 0.3 s" });
});
