/** Random requests by every kind of caller: the short versions of `npm run check:fuzz`. */
import assert from "node:assert/strict";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AuditService } from "../../gen/svc/v1/audit_pb.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { type TestDaemon, isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { storeCheck } from "../support/store-check.ts";
import { Exchange, type ExchangeTarget, type FuzzAnswer } from "./exchange.ts";
import { fuzz } from "./fuzz.ts";
import { Random } from "./random.ts";
import { type FuzzRequest, randomRequest } from "./requests.ts";

// The short version of `npm run check:fuzz`.

test("after 3,000 random requests the daemon still runs, and all its responses were declared", async (t) => {
  const seed = Date.now() % 2 ** 32;
  t.log(`seed ${seed}`);
  const { answers, failures } = await fuzz({ count: 3_000, seed });
  t.deepEqual(failures, []);
  t.true([...answers.keys()].includes("REST 200"));
});

test("a compressed message of a call without a compression is not logged as a defect of svc", async (t) => {
  await using daemon = await startDaemon();
  using exchange = new Exchange({ socketPath: daemon.socketPath });
  const { text } = await exchange.send({
    ...{ kind: "mutated", protocol: "Connect", http: "1.1", method: "POST" },
    path: "/svc.v1.FileService/WriteFile",
    headers: { "content-type": "application/connect+json", "connect-protocol-version": "1" },
    body: Buffer.from([1, 0, 0, 0, 2, 0x7b, 0x7d]),
  });
  t.regex(text, /a message is compressed, but the request declares no compression/);
  // The line of the call follows that of a defect.
  await eventually(() =>
    assert.match(daemon.log(), /"method":"svc\.v1\.FileService\/WriteFile".*"result":"internal"/),
  );
  t.notRegex(daemon.log(), /unexpected error in/);
});

// `svc doctor` and `svc audit --verify` agree about the audit log, whoever called.

const rootTest = isRoot ? test : test.skip;
const users = [4001, 4002] as const;
/** 10,000 take two minutes. */
const requests = process.env["SVC_LONG"] === undefined ? 1_000 : 10_000;
const concurrency = 20;

/** Methods that would affect the daemon's host, its tokens, sessions or this test, or change files of the host. */
const leftOut = /system|process|file|docker|rotat|revoke|restore|backup|EndSession|DELETE .*sessions/i;
const changing = routes.filter(
  ({ httpMethod, template, method }) =>
    httpMethod !== "GET" &&
    !leftOut.test(`${httpMethod} ${template.source} ${method.parent.name} ${method.name}`),
);

interface Caller {
  readonly name: string;
  readonly target: ExchangeTarget;
  readonly headers: Readonly<Record<string, string>>;
  /** Whether it may call everything, so that it must not send random messages to all methods. */
  readonly isRoot: boolean;
}

/** A call over REST of a method that changes something, which names objects that do not exist. */
function changingRequest(random: Random): FuzzRequest {
  const { httpMethod: method, template } = random.pick(changing);
  const path = template.source.replaceAll(/\{[^}]*\}/g, () => `none-${random.integer(50)}`);
  const body = method === "DELETE" ? "" : random.pick(["{}", '{"name": "x"}', "{"]);
  const headers = { "content-type": "application/json" };
  return { kind: "valid", protocol: "REST", http: "1.1", method, path, headers, body: Buffer.from(body) };
}

/** Whether the request is left out for this caller. Root sends random messages only to methods that do no harm to it. */
function isLeftOut({ method, path, headers }: FuzzRequest, { isRoot }: Caller): boolean {
  return leftOut.test(`${method} ${path}`) || (isRoot && headers["authorization"] === "Bearer svcp_wrong");
}

/** The request as this caller sends it. */
function asCaller(request: FuzzRequest, caller: Caller): FuzzRequest {
  const { authorization: _authorization, ...headers } = request.headers;
  return { ...request, headers: { ...headers, ...caller.headers } };
}

/** Root, users, and every kind of token, right, wrong and expired. */
async function callersOf(
  daemon: TestDaemon,
  sockets: readonly { readonly socketPath: string }[],
): Promise<readonly Caller[]> {
  const { port, socketPath } = daemon;
  const replaced = daemon.token;
  const { token: primary } = await daemon
    .tokenClient(TokenService, "rest")
    .rotatePrimaryToken({ graceSecs: 3_600 });
  const asPrimary = daemon.tokenClient(TokenService, "rest", primary);
  const { token: access } = await asPrimary.issueAccessToken({});
  const short = await asPrimary.issueAccessToken({ ttlSecs: 1 });
  const sessions = daemon.client(SessionService);
  const open = async (code: string) => daemon.tokenClient(SessionService, "rest", code).openSession({});
  const { code: used } = await sessions.issueSessionCode({});
  const { token: rootSession } = await open(used);
  const { code: unused } = await sessions.issueSessionCode({});
  const link = await sessions.issueSessionCode({ ttlSecs: 1 });
  const userSessions = await Promise.all(
    users.map(async (uid) => {
      await using user = await daemon.as(uid);
      return await open((await user.client(SessionService).issueSessionCode({})).code);
    }),
  );
  const [{ token: userSession } = { token: "" }, { token: ended } = { token: "" }] = userSessions;
  await daemon.tokenClient(SessionService, "rest", ended).endSessions({});
  const expiresMs = Math.max(
    ...[short, link].map(({ expiresAt }) => (expiresAt ? timestampMs(expiresAt) : 0)),
  );
  await eventually(() => assert.ok(Date.now() > expiresMs, "the link and the token expire"));
  const bearer = (name: string, token: string, isRoot = false): Caller => ({
    ...{ name, isRoot, target: { host: "127.0.0.1", port } },
    headers: { authorization: `Bearer ${token}` },
  });
  return [
    { name: "root", target: { socketPath }, headers: {}, isRoot: true },
    {
      name: "sudo",
      target: { socketPath },
      headers: { "x-svc-sudo-uid": "4001", "x-svc-sudo-gid": "4001" },
      isRoot: true,
    },
    ...sockets.map(({ socketPath }, at) => ({
      name: `user ${users[at]}`,
      target: { socketPath },
      headers: {},
      isRoot: false,
    })),
    bearer("primary token", primary, true),
    bearer("replaced token", replaced, true),
    bearer("access token", access, true),
    bearer("session of root", rootSession, true),
    bearer("session of a user", userSession),
    bearer("ended session", ended),
    bearer("unused link", unused),
    bearer("used link", used),
    bearer("expired link", link.code),
    bearer("expired access token", short.token),
    bearer("wrong token", "wrong"),
    { name: "anonymous", target: { host: "127.0.0.1", port }, headers: {}, isRoot: false },
  ];
}

rootTest(`doctor accepts the audit record of a call with a wrong token${needsRoot}`, async (t) => {
  await using daemon = await startDaemon();
  t.like(await errorOf(daemon.tokenClient(TokenService, "rest", "wrong").revokeAccessTokens({})), {
    reason: "unauthenticated",
  });
  await daemon.stop();
  t.regex(await storeCheck(daemon), /^ok: /);
});

rootTest(
  `doctor and verify agree after thousands of requests by every kind of caller${needsRoot}`,
  async (t) => {
    t.timeout(900_000);
    const seed = Number(process.env["SVC_SEED"] ?? Date.now() % 2 ** 32);
    t.log(`seed ${seed}`);
    const random = new Random(seed);
    await using daemon = await startDaemon({
      config: "[api.limits]\ntoken_failure_budget = 1000000\nreset_budget = 1000000\n",
    });
    await using ann = await daemon.as(users[0]);
    await using ben = await daemon.as(users[1]);
    const callers = await callersOf(daemon, [ann, ben]);
    const wrong = callers.find(({ name }) => name === "wrong token")!;
    const answers = new Map<string, number>();
    let left = requests;
    const work = async (): Promise<void> => {
      using exchanges = new DisposableStack();
      const open = new Map(callers.map((caller) => [caller, exchanges.use(new Exchange(caller.target))]));
      while (left > 0) {
        left--;
        const request = random.once(2) ? changingRequest(random) : randomRequest(random, "its own");
        const picked = random.pick(callers);
        const caller = isLeftOut(request, picked) ? wrong : picked;
        const answer = await open.get(caller)!.send(asCaller(request, caller));
        const key = outcome(answer);
        answers.set(key, (answers.get(key) ?? 0) + 1);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, work));
    t.log(Object.fromEntries([...answers].toSorted()));
    for (const expected of ["400", "401", "403", "404", "gRPC 16"])
      t.true((answers.get(expected) ?? 0) > 10, `answers with ${expected}`);
    t.deepEqual(daemon.log().match(/.*unexpected error in.*/g), null);
    t.like(await daemon.client(AuditService).verifyAudit({}), { valid: true, problem: "" });
    t.regex(await storeCheck(daemon), /^ok: /);
    await daemon.stop();
    t.regex(await storeCheck(daemon), /^ok: /, "counted calls are recorded when the daemon stops");
  },
);

function outcome({ status, grpcStatus }: FuzzAnswer): string {
  return grpcStatus === undefined ? String(status) : `gRPC ${grpcStatus}`;
}
