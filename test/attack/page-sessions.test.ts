/** Attacks by another node, and on the cookie of a page's session. */
import { mkdtemp, rm } from "node:fs/promises";
import {
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
  createServer,
  request as httpRequest,
} from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService, DownloadBackupRequestSchema } from "../../gen/svc/v1/backup_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { encodeEnvelope } from "../../src/cli/client/envelope.ts";
import { type SvcRun, runSvc } from "../cli/support/run-svc.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { type TestDaemon, isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";

// The cookie of a page's session: other ports of the host receive it, other sites make the browser send it.

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const daemonOf = sharedDaemon();

function ask(
  { port }: Pick<TestDaemon, "port">,
  method: string,
  path: string,
  headers: Record<string, string>,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const body = method === "POST" ? '{"cookie":true}' : undefined;
    const sent = httpRequest({ port, host: "127.0.0.1", method, path, headers, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (piece: string) => (text += piece));
      response.once("end", () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: text }),
      );
    });
    sent.once("error", reject).end(body);
  });
}

interface PageSession {
  readonly key: string;
  /** As a browser sends it. */
  readonly cookie: string;
  readonly setCookie: string;
  readonly host: string;
}

async function openPageSession(daemon: TestDaemon, origin?: string): Promise<PageSession> {
  const { code } = await daemon.client(SessionService).issueSessionCode({});
  const host = origin?.replace(/^https?:\/\//, "") ?? `127.0.0.1:${daemon.port}`;
  const answer = await ask(daemon, "POST", "/v1/sessions", {
    authorization: `Bearer ${code}`,
    "content-type": "application/json",
    host,
    origin: origin ?? `http://${host}`,
  });
  if (answer.status !== 200) throw new Error(answer.body);
  const { key, token } = JSON.parse(answer.body) as { key: string; token: string };
  if (token !== "") throw new Error("the whole token was returned");
  const [setCookie = ""] = answer.headers["set-cookie"] ?? [];
  return { key, setCookie, cookie: setCookie.split(";", 1)[0] ?? "", host };
}

test("a page's session needs both halves of its token, from the page's own origin", async (t) => {
  const daemon = await daemonOf();
  const { key, cookie, host } = await openPageSession(daemon);
  const [, rest = ""] = cookie.split("=");
  const status = async (headers: Record<string, string>): Promise<number> =>
    (await ask(daemon, "GET", "/v1/status", { host, ...headers })).status;
  const authorization = `Session ${key}`;
  t.is(await status({ authorization, cookie }), 200);
  t.is(
    await status({ authorization, cookie, origin: `http://${host}`, "sec-fetch-site": "same-origin" }),
    200,
  );
  t.is(await status({ cookie }), 401, "only the cookie");
  t.is(await status({ authorization }), 401, "only the key");
  t.is(await status({ authorization: `Bearer ${key}`, cookie }), 401, "the key as a token");
  t.is(await status({ authorization: `Bearer ${rest}`, cookie }), 401, "the cookie as a token");
  t.is(await status({ authorization, cookie, "sec-fetch-site": "cross-site" }), 401);
  t.is(await status({ authorization, cookie, "sec-fetch-site": "same-site" }), 401, "another port");
  t.is(await status({ authorization, cookie, origin: "http://127.0.0.1:1" }), 403);
  t.is(await status({ authorization, cookie, host: "evil.example" }), 403);
  t.is(await status({ authorization, cookie, host: "127.0.0.1:1" }), 401, "the cookie of another port");
  const other = await openPageSession(daemon);
  t.is(await status({ authorization, cookie: other.cookie }), 401, "a cookie that another port has set");
});

test("cookies that an app on another port has set do not end a session", async (t) => {
  const daemon = await daemonOf();
  const { key, cookie, host } = await openPageSession(daemon);
  const name = `svc_session_${daemon.port}`;
  const forged = [`__Host-${name}=y`, `${name}=x`, `${name}=`];
  const status = async (cookies: readonly string[], authorization = `Session ${key}`): Promise<number> =>
    (await ask(daemon, "GET", "/v1/status", { host, authorization, cookie: cookies.join("; ") })).status;
  t.is(await status([...forged, cookie]), 200, "before");
  t.is(await status([cookie, ...forged]), 200, "after");
  t.is(await status(forged), 401);
  t.is(await status([...forged, cookie], `Bearer ${key}`), 401);
});

test("the cookie is hidden from scripts and other sites, and gone at sign-out", async (t) => {
  const daemon = await daemonOf();
  const { key, cookie, setCookie, host } = await openPageSession(daemon);
  const name = `svc_session_${daemon.port}`;
  t.regex(setCookie, new RegExp(`^${name}=[\\w-]{21}; Path=/; HttpOnly; SameSite=Strict$`));
  const origin = `http://${host}`;
  const out = await ask(daemon, "DELETE", "/v1/sessions", {
    authorization: `Session ${key}`,
    cookie,
    host,
    origin,
  });
  t.is(out.status, 200);
  t.regex(out.headers["set-cookie"]?.[0] ?? "", new RegExp(`^${name}=; .*Max-Age=0$`));
  const after = await ask(daemon, "GET", "/v1/status", { authorization: `Session ${key}`, cookie, host });
  t.is(after.status, 401);
});

test("behind https the cookie is sent over TLS only", async (t) => {
  const daemon = await daemonOf();
  const { key, cookie, setCookie, host } = await openPageSession(daemon, "https://localhost");
  t.regex(setCookie, /^__Host-svc_session=[\w-]{21}; Path=\/; HttpOnly; SameSite=Strict; Secure$/);
  const headers = { authorization: `Session ${key}`, cookie, host };
  t.is((await ask(daemon, "GET", "/v1/status", headers)).status, 200);
});

test("a cookie is given only to a page", async (t) => {
  const daemon = await daemonOf();
  const { code } = await daemon.client(SessionService).issueSessionCode({});
  const answer = await ask(daemon, "POST", "/v1/sessions", {
    authorization: `Bearer ${code}`,
    "content-type": "application/json",
  });
  t.is(answer.status, 400);
  t.regex(answer.body, /cookie needs the `Origin` header/);
});

test("an invalid origin does not use up a code and is not an internal error", async (t) => {
  const daemon = await daemonOf();
  const { code } = await daemon.client(SessionService).issueSessionCode({});
  const headers = { authorization: `Bearer ${code}`, "content-type": "application/json" };
  const odd = { ...headers, host: "localhost:99999", origin: "http://localhost:99999" };
  t.is((await ask(daemon, "POST", "/v1/sessions", odd)).status, 400);
  const origin = `http://127.0.0.1:${daemon.port}`;
  t.is((await ask(daemon, "POST", "/v1/sessions", { ...headers, origin })).status, 200);
});

test("a page with an invalid origin ends its session", async (t) => {
  const daemon = await daemonOf();
  const { key, cookie: own } = await openPageSession(daemon);
  const cookie = own.replace(/^svc_session_\d+/, "svc_session_99999");
  const odd = { host: "localhost:99999", origin: "http://localhost:99999" };
  const out = await ask(daemon, "DELETE", "/v1/sessions", {
    authorization: `Session ${key}`,
    cookie,
    ...odd,
  });
  t.is(out.status, 200, out.body);
  t.is(out.headers["set-cookie"], undefined);
});

test("a used sign-in link says so, with the command for another", async (t) => {
  const daemon = await daemonOf();
  const { code } = await daemon.client(SessionService).issueSessionCode({});
  const headers = {
    authorization: `Bearer ${code}`,
    "content-type": "application/json",
    origin: `http://127.0.0.1:${daemon.port}`,
  };
  t.is((await ask(daemon, "POST", "/v1/sessions", headers)).status, 200);
  const again = await ask(daemon, "POST", "/v1/sessions", headers);
  t.is(again.status, 401);
  t.regex(again.body, /this sign-in link has expired or was already used; get another with: svc web/);
});

test("sessions are listed and ended one by one, and only by their own user", async (t) => {
  const daemon = await daemonOf();
  const sessions = daemon.client(SessionService);
  await sessions.endSessions({});
  const [first, second] = [await openPageSession(daemon), await openPageSession(daemon)];
  const headers = { authorization: `Session ${first.key}`, cookie: first.cookie, host: first.host };
  const listed = JSON.parse((await ask(daemon, "GET", "/v1/sessions", headers)).body) as {
    sessions: { id: string; current: boolean }[];
  };
  t.deepEqual(
    listed.sessions.map(({ current }) => current),
    [false, true],
  );
  const [other, own] = listed.sessions;
  t.is((await ask(daemon, "DELETE", `/v1/sessions/${other?.id ?? ""}`, headers)).status, 200);
  const ended = { authorization: `Session ${second.key}`, cookie: second.cookie, host: second.host };
  t.is((await ask(daemon, "GET", "/v1/status", ended)).status, 401);
  t.deepEqual(
    (await sessions.listSessions({})).sessions.map(({ id }) => id),
    [own?.id],
  );
  if (process.getuid?.() !== 0) return;
  await using connection = await daemon.as(4_002);
  t.deepEqual((await connection.client(SessionService).listSessions({})).sessions, []);
  await t.throwsAsync(connection.client(SessionService).endSession({ id: own?.id ?? "" }), {
    message: /no session/,
  });
  t.is((await ask(daemon, "GET", "/v1/status", headers)).status, 200);
});

// Attacks by a node that an app is copied or moved from.

const rootTest = isRoot ? test : test.skip;
const victim = 5;

interface Liar extends AsyncDisposable {
  readonly socketPath: string;
}

/** A daemon that sends the archive of another app in place of the requested one. */
async function startLiar(dir: string, daemonSocket: string, appId: string, name: string): Promise<Liar> {
  const socketPath = join(dir, "liar.sock");
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body: Buffer<ArrayBuffer> = Buffer.concat((await request.toArray()) as Buffer[]);
    if (request.url?.endsWith("/DownloadBackup") === true) {
      const asked = fromBinary(DownloadBackupRequestSchema, body.subarray(5));
      body = encodeEnvelope(
        0,
        toBinary(DownloadBackupRequestSchema, { ...asked, appId, name }),
      ) as typeof body;
    }
    const { "transfer-encoding": _, ...headers } = request.headers;
    const sent = httpRequest(
      {
        ...{ socketPath: daemonSocket, method: request.method, path: request.url },
        headers: { ...headers, "content-length": body.length },
      },
      (answered) => {
        response.writeHead(answered.statusCode ?? 500, answered.headers);
        answered.pipe(response);
      },
    );
    sent.on("error", () => response.destroy());
    sent.end(body);
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

rootTest(
  `a source node replaces no other app of the target node, and chooses no other owner${needsRoot}`,
  async (t) => {
    t.timeout(180_000);
    await using near = await startDaemon();
    await using attic = await startDaemon();
    await using theirs = await near.as(victim);
    const home = await mkdtemp(join(tmpdir(), "svc-hostile-node-"));
    t.teardown(() => rm(home, { recursive: true }));
    const svc = (...args: string[]): Promise<SvcRun> => runSvc(args, { host: { home, uid: 0 } });
    const dir = join(near.dir, "package");
    await writePackage(dir, await freePort());
    const apps = near.client(AppService);
    const install = async (id: string, client = apps): Promise<string> => {
      await client.installApp({ spec: dir, name: id, settings: { greeting: `from near: ${id}` } });
      const { results } = await near.client(BackupService).createBackup({ appId: id });
      return results[0]?.name ?? "";
    };
    const bait = await install("bait");
    const other = await install("precious");
    const foreign = await install("foreign", theirs.client(AppService));
    await attic.client(AppService).installApp({
      ...{ spec: dir, name: "precious" },
      settings: { greeting: "from attic" },
    });
    t.not(bait, "");

    for (const command of ["copy", "move"]) {
      for (const [appId, name] of [
        ["precious", other],
        ["foreign", foreign],
      ] as const) {
        await using liar = await startLiar(home, near.socketPath, appId, name);
        await svc("node", "add", "liar", `unix://${liar.socketPath}`);
        await svc("node", "add", "attic", `unix://${attic.socketPath}`);
        const run = await svc("-N", "liar", "app", command, "bait", "--to", "attic", "--accept-permissions");
        t.not(run.exitCode, 0, run.stdout);
        t.regex(
          run.stderr,
          new RegExp(`sent an archive of another app: its ID is "${appId}" instead of "bait"`),
        );
      }
    }
    const { apps: there } = await attic.client(AppService).listApps({});
    t.deepEqual(
      there.map(({ id, owner }) => [id, owner]),
      [["precious", 0]],
    );
    const { values } = await attic.client(AppService).getAppSettings({ id: "precious" });
    t.is(values?.["greeting"], "from attic");
    t.deepEqual((await attic.client(BackupService).listBackups({})).backups, []);
  },
);
