/** Another user takes the daemon's TCP port while no daemon runs, and waits for tokens. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { chmod, chown, link, mkdtemp, rm, writeFile } from "node:fs/promises";
import { request, type IncomingMessage } from "node:http";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { attackAs } from "./as-user.ts";

/** Above the uids that hosts give to accounts: errors name accounts. */
const attacker = 61_001;
const rootTest = isRoot ? test : test.skip;

/** `svc status` over TCP, with a token in a file. */
async function askOverTcp({ dir, token, socketPath }: TestDaemon, address: string) {
  const file = join(dir, "token");
  await writeFile(file, token, { mode: 0o600 });
  const env = { SVC_TOKEN_FILE: file };
  const sockets = { checkoutDir: undefined, system: socketPath, user: socketPath };
  return runSvc(["--host", `http://${address}`, "status"], { host: { home: dir, uid: 0, env, sockets } });
}

async function requestHealth(port: number, host: string, address = "127.0.0.1"): Promise<{ status: number }> {
  const sent = request({ port, host: address, path: "/healthz", headers: { host }, agent: false }).end();
  const [response] = (await nextEvent(sent, "response")) as [IncomingMessage];
  response.resume();
  return { status: response.statusCode ?? 0 };
}

/** A program of root that is not the daemon, such as the container engine's proxy. */
async function listenAsRoot(host: string, port: number) {
  let received = "";
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).on("data", (bytes: Buffer) => (received += bytes.toString("latin1")));
  }).listen(port, host);
  await once(server, "listening");
  return {
    received: () => received,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

rootTest(
  `a user who takes the port during a restart gets no token, and the daemon reclaims the port${needsRoot}`,
  async (t) => {
    t.timeout(120_000);
    const port = await freePort();
    await using daemon = await startDaemon({ listen: `127.0.0.1:${port}` });
    await daemon.stop();
    {
      await using squatter = attackAs(attacker, "squatter.mjs", { port });
      t.is(await squatter.nextLine(), "listening");
      let received = "";
      void squatter.nextLine().then((text) => (received = text));
      await daemon.restart();

      const status = await daemon.client(DaemonService).getStatus({});
      const tcp = status.listeners.find(({ kind }) => kind === "tcp");
      t.like(tcp, { state: "FAILED", address: `127.0.0.1:${port}` });
      const shown = await runSvc(["--socket", daemon.socketPath, "status"]);
      t.regex(shown.stdout, new RegExp(`Listener: +127\\.0\\.0\\.1:${port} is not served: .*EADDRINUSE`));
      const doctor = await runSvc(["doctor", "--config", daemon.configFile]);
      t.regex(doctor.stdout, new RegExp(`warning +port +cannot listen on 127\\.0\\.0\\.1:${port} `));
      const metrics = Buffer.from((await daemon.client(DaemonService).getDaemonMetrics({})).data).toString();
      t.regex(metrics, new RegExp(`svc_listener_up\\{kind="tcp",address="127\\.0\\.0\\.1:${port}"\\} 0`));
      await t.throwsAsync(daemon.client(SessionService).issueSessionCode({}), {
        message: /the daemon does not listen on its TCP address/,
      });

      const refused = await askOverTcp(daemon, `127.0.0.1:${port}`);
      t.not(refused.exitCode, 0);
      t.regex(
        refused.stderr,
        new RegExp(`the token was not sent to 127\\.0\\.0\\.1:${port}: uid ${attacker} listens there`),
      );
      await wait(200);
      t.is(received, "");
    }
    await eventually(async () => {
      const { listeners } = await daemon.client(DaemonService).getStatus({});
      assert.equal(listeners.find(({ kind }) => kind === "tcp")?.state, "LISTENING");
    }, 90_000);
    const served = await askOverTcp(daemon, `127.0.0.1:${port}`);
    t.is(served.stderr, "");
    t.regex(served.stdout, /Daemon/);
  },
);

rootTest(
  `a user with an unaccepted connection gets no token, although older kernels show it as root's${needsRoot}`,
  async (t) => {
    t.timeout(60_000);
    const port = await freePort();
    await using daemon = await startDaemon();
    await using squatter = attackAs(attacker, "squatter.mjs", { port });
    t.is(await squatter.nextLine(), "listening");
    let received = "";
    void squatter.nextLine().then((text) => (received = text));
    process.kill(squatter.pid, "SIGSTOP");
    const asked = askOverTcp(daemon, `127.0.0.1:${port}`);
    await wait(500);
    process.kill(squatter.pid, "SIGCONT");
    const { exitCode, stderr } = await asked;
    t.not(exitCode, 0);
    t.regex(stderr, /the token was not sent to /);
    await wait(200);
    t.is(received, "");
  },
);

for (const host of ["127.0.0.2", "::1"])
  rootTest(
    `root's program on ${host} gets no token while the daemon serves the same port of 127.0.0.1${needsRoot}`,
    async (t) => {
      t.timeout(60_000);
      const port = await freePort();
      await using other = await listenAsRoot(host, port);
      await using daemon = await startDaemon({ listen: `127.0.0.1:${port}` });
      const authority = `${host.includes(":") ? `[${host}]` : host}:${port}`;
      const refused = await askOverTcp(daemon, authority);
      t.not(refused.exitCode, 0);
      t.true(
        refused.stderr.includes(
          `the token was not sent to ${authority}: a program of root listens there, and the daemon on ${daemon.socketPath} ` +
            "does not confirm that address as its own; use the daemon's socket",
        ),
        refused.stderr,
      );
      t.is(other.received(), "");
    },
  );

rootTest(
  `localhost is the daemon's address, also if it resolves to another one first${needsRoot}`,
  async (t) => {
    t.timeout(60_000);
    const port = await freePort();
    await using other = await listenAsRoot("127.0.0.1", port);
    await using daemon = await startDaemon({ listen: `[::1]:${port}` });
    const served = await askOverTcp(daemon, `localhost:${port}`);
    t.is(served.stderr, "");
    t.regex(served.stdout, /Daemon/);
    t.is(other.received(), "");
  },
);

rootTest(`a program of root gets no token while the daemon does not run${needsRoot}`, async (t) => {
  t.timeout(60_000);
  const port = await freePort();
  await using daemon = await startDaemon({ listen: `127.0.0.1:${port}` });
  await daemon.stop();
  await using other = await listenAsRoot("127.0.0.1", port);
  for (const host of ["127.0.0.1", "localhost"]) {
    const { exitCode, stderr } = await askOverTcp(daemon, `${host}:${port}`);
    t.not(exitCode, 0);
    t.regex(stderr, /the token was not sent to .*: a program of root listens there/);
  }
  t.is(other.received(), "");
});

rootTest(`a socket that another user created confirms nothing${needsRoot}`, async (t) => {
  t.timeout(60_000);
  await using daemon = await startDaemon();
  const dir = await mkdtemp(join(tmpdir(), "svc-squatter-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const socketPath = join(dir, "svc.sock");
  // The daemon's own socket: only the path does not belong to root.
  await link(daemon.socketPath, socketPath);
  const ask = () => askOverTcp({ ...daemon, socketPath }, `127.0.0.1:${daemon.port}`);
  t.is((await ask()).exitCode, 0, "a path of root");
  await chown(dir, attacker, attacker);
  t.regex((await ask()).stderr, /the token was not sent to /);
  await chown(dir, 0, 0);
  await chmod(dir, 0o777);
  t.regex((await ask()).stderr, /the token was not sent to /);
});

rootTest(`a regular user sees the daemon's addresses, and no reasons${needsRoot}`, async (t) => {
  t.timeout(60_000);
  const port = await freePort();
  await using other = await listenAsRoot("127.0.0.1", port);
  await using daemon = await startDaemon({ listen: `127.0.0.1:${port}` });
  const tcpSeenBy = async (connection: Pick<TestDaemon, "client">) => {
    const { listeners } = await connection.client(DaemonService).getStatus({});
    return listeners.find(({ kind }) => kind === "tcp");
  };
  await using user = await daemon.as(attacker);
  t.like(await tcpSeenBy(user), { address: `127.0.0.1:${port}`, state: "FAILED", reason: "" });
  t.regex((await tcpSeenBy(daemon))?.reason ?? "", /EADDRINUSE/);
  t.is(other.received(), "");
});

rootTest(
  `a user who held the port cannot predict the origin of a later sign-in link${needsRoot}`,
  async (t) => {
    t.timeout(60_000);
    await using daemon = await startDaemon({ listen: `127.0.0.1:${await freePort()}` });
    const originOf = async () =>
      new URL((await daemon.client(SessionService).issueSessionCode({})).page).origin;
    const first = await originOf();
    t.regex(first, new RegExp(`^http://[0-9a-f]{32}\\.localhost:${daemon.port}$`));
    t.is(await originOf(), first, "one origin, so that the page can ask before it switches users");
    const { status } = await requestHealth(daemon.port, new URL(first).host);
    t.is(status, 200);
    t.is((await requestHealth(daemon.port, `evil.localhost:${daemon.port}`)).status, 403);
    await daemon.restart();
    t.not(await originOf(), first);
  },
);

rootTest(`a user cannot receive a sign-in link on the other loopback address${needsRoot}`, async (t) => {
  t.timeout(60_000);
  const port = await freePort();
  await using daemon = await startDaemon({ listen: `127.0.0.1:${port}` });
  const issue = () => daemon.client(SessionService).issueSessionCode({});
  t.is((await requestHealth(port, `[::1]:${port}`, "::1")).status, 200, "the daemon holds both");
  await daemon.stop();
  {
    await using squatter = attackAs(attacker, "squatter.mjs", { port, host: "::1" });
    t.is(await squatter.nextLine(), "listening");
    await daemon.restart();
    await t.throwsAsync(issue(), {
      message: new RegExp(
        `sign-in links are not available: cannot listen on \\[::1\\]:${port} \\(EADDRINUSE\\)`,
      ),
    });
    const { listeners } = await daemon.client(DaemonService).getStatus({});
    t.true(listeners.some(({ address, state }) => address === `[::1]:${port}` && state === "FAILED"));
    t.is((await requestHealth(port, `127.0.0.1:${port}`)).status, 200, "TCP still works");
  }
});
