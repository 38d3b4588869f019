/**
 * Access to every method, generated from the contract: by every kind of caller over every protocol. A denied caller
 * sends a request that would have an effect, and nothing happens. An admitted caller sends bytes that cannot be parsed:
 * only a caller who passes the gate gets the error that they are malformed.
 */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { Agent } from "node:http";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import type { DescMethod } from "@bufbuild/protobuf";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { methodPolicies, type MethodPolicy } from "../../gen/svc/v1/methods.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { SystemService } from "../../gen/svc/v1/system_pb.ts";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { services } from "../../gen/svc/v1/services.ts";
import { mapBounded } from "../../src/lib/map-bounded.ts";
import { mintToken } from "../../src/access/tokens/token-digest.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon, type UserConnection } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import {
  isCallable,
  rawCall,
  rawProtocols,
  type Outcome,
  type RawProtocol,
  type Target,
} from "../support/raw-call.ts";
import { isRequired, sampleMessage } from "../support/sample-message.ts";

const ownerUid = 65534;
const strangerUid = 1;
const callsAtOnce = 8;

const identities = [
  "no token",
  "bad token",
  "access",
  "primary",
  "replaced primary",
  "root peer",
  "user peer",
  "other user",
  "root's session",
  "user's session",
  "session code",
] as const;
type Identity = (typeof identities)[number];

const methods = services.flatMap((service) => service.methods);

function policyOf(method: DescMethod): MethodPolicy {
  const name = `${method.parent.typeName}/${method.name}`;
  const policy = (methodPolicies as Readonly<Record<string, MethodPolicy>>)[name];
  if (policy === undefined) throw new Error(`${name} has no policy`);
  return policy;
}

/** The gate's error for the caller; `undefined` if the caller is admitted. */
function refusalOf(identity: Identity, { access }: MethodPolicy): Required<Outcome> | undefined {
  if (identity === "no token" || identity === "bad token") {
    return { code: "unauthenticated", reason: "unauthenticated", status: 401 };
  }
  if (isTokenDenied(identity, access)) {
    return { code: "permission_denied", reason: "token_denied", status: 403 };
  }
  const isUser = ["user peer", "other user", "user's session"].includes(identity);
  if ((access === "ROOT" || access === "PRIMARY") && isUser) {
    return { code: "permission_denied", reason: "root_required", status: 403 };
  }
  return undefined;
}

/** Whether the caller's kind of credential cannot use the method, whoever they are. */
function isTokenDenied(identity: Identity, access: MethodPolicy["access"]): boolean {
  if (access === "CODE" || identity === "session code")
    return (access === "CODE") !== (identity === "session code");
  if (access === "PEER") return !["root peer", "user peer", "other user"].includes(identity);
  return access === "PRIMARY" && ["access", "root's session", "user's session"].includes(identity);
}

/** The error for bytes that are not a message. */
const unreadable = { code: "invalid_argument", reason: "invalid_request", status: 400 };
const hidden = { code: "not_found", reason: "not_found", status: 404 };
const notOffered = { code: "unimplemented", reason: "not_implemented", status: 501 };

/** Methods about one app, which does not exist for other users; a list's filter does not count. */
function concernsApp({ parent, input }: DescMethod): boolean {
  if (parent !== AppService && parent !== BackupService) return false;
  return input.fields.some((field) => ["id", "app_id"].includes(field.name) && isRequired(field));
}

/** All of loopback is one address, and thousands of calls have an unknown token. */
const manyFailures = "[api.limits]\ntoken_failure_budget = 1000000\ntoken_failure_refill_per_sec = 1000000\n";

interface World extends AsyncDisposable {
  readonly daemon: TestDaemon;
  readonly targetOf: (identity: Identity) => Target | Promise<Target>;
  readonly sample: (method: DescMethod) => ReturnType<typeof sampleMessage>;
  readonly capabilities: readonly string[];
  /** Everything that a call could have changed. */
  readonly snapshot: () => Promise<unknown>;
}

async function createWorld(): Promise<World> {
  const stack = new AsyncDisposableStack();
  const daemon = stack.use(await startDaemon({ config: manyFailures }));
  const owner: UserConnection = stack.use(await daemon.as(ownerUid));
  const stranger: UserConnection = stack.use(await daemon.as(strangerUid));
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await owner.client(AppService).installApp({ spec: dir });
  await owner.client(AppService).startApp({ id: "web" });
  stack.defer(async () => {
    await owner.client(AppService).removeApp({ id: "web" });
  });
  const canary = join(daemon.dir, "canary");
  await writeFile(canary, "untouched");

  const { token: primary } = await daemon.client(TokenService).rotatePrimaryToken({ graceSecs: 86_400 });
  const { token: access } = await daemon.client(TokenService).issueAccessToken({ ttlSecs: 86_400 });
  const agent = stack.adopt(new Agent({ keepAlive: true }), (it) => it.destroy());
  const overTcp = (token: string | undefined): Target => {
    const isKnown = token !== undefined && token !== badToken;
    return {
      port: daemon.port,
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      ...(isKnown && { agent }),
    };
  };
  const overSocket = (socketPath: string): Target => ({ socketPath, headers: {}, agent });
  const badToken = mintToken("primary");
  const session = async (connection: Pick<UserConnection, "client">): Promise<Target> => {
    const { code } = await connection.client(SessionService).issueSessionCode({});
    return overTcp((await daemon.tokenClient(SessionService, "connect", code).openSession({})).token);
  };
  const sessions = { root: await session(daemon), user: await session(owner) };
  // A code is valid for 30 seconds, and a user has a hundred at most.
  let code = { target: Promise.resolve(overTcp(undefined)), untilMs: 0 };
  const codeTarget = (): Promise<Target> => {
    if (performance.now() >= code.untilMs) {
      const issued = owner.client(SessionService).issueSessionCode({});
      code = { target: issued.then((it) => overTcp(it.code)), untilMs: performance.now() + 10_000 };
    }
    return code.target;
  };
  const targets: Readonly<Record<Identity, () => Target | Promise<Target>>> = {
    "no token": () => overTcp(undefined),
    "bad token": () => overTcp(badToken),
    access: () => overTcp(access),
    primary: () => overTcp(primary),
    "replaced primary": () => overTcp(daemon.token),
    "root peer": () => overSocket(daemon.socketPath),
    "user peer": () => overSocket(owner.socketPath),
    "other user": () => overSocket(stranger.socketPath),
    "root's session": () => sessions.root,
    "user's session": () => sessions.user,
    "session code": codeTarget,
  };
  const root = daemon.client(AppService);
  return {
    daemon,
    targetOf: (identity) => targets[identity](),
    sample: (method) =>
      sampleMessage(method.input, {
        spec: dir,
        path: canary,
        paths: canary,
        source: canary,
        sources: canary,
        destination: join(daemon.dir, "moved"),
        trigger: "daily@03:00",
        // No process has it.
        pid: 2 ** 31 - 1,
      }),
    capabilities: (await daemon.client(DaemonService).getStatus({})).capabilities,
    snapshot: async () => ({
      apps: (await root.listApps({})).apps,
      settings: (await root.getAppSettings({ id: "web" })).values,
      tokens: await daemon.client(TokenService).getTokenStatus({}),
      tokenFile: await readFile(join(daemon.dir, "api.token"), "utf8"),
      canary: await readFile(canary, "utf8"),
      files: (await readdir(daemon.dir)).toSorted(),
      store: (await readdir(join(daemon.storeDir, "apps", "web"))).toSorted(),
    }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

interface Cell {
  readonly method: DescMethod;
  readonly identity: Identity;
  readonly protocol: RawProtocol;
}

const cells: readonly Cell[] = methods.flatMap((method) =>
  identities.flatMap((identity) =>
    rawProtocols.flatMap((protocol) =>
      isCallable(method, protocol) ? [{ method, identity, protocol }] : [],
    ),
  ),
);

function titleOf({ method, identity, protocol }: Cell): string {
  return `${method.parent.name}.${method.name} as ${identity} over ${protocol}`;
}

/** The differences from the expectation, one line each. */
async function deviations(
  chosen: readonly Cell[],
  expected: (cell: Cell) => Required<Outcome>,
  call: (cell: Cell) => Promise<Outcome>,
): Promise<string[]> {
  const found = await mapBounded(chosen, callsAtOnce, async (cell) => {
    const want = expected(cell);
    const got = await call(cell).catch((error: unknown) => ({ code: String(error), reason: "" }));
    const comparable = cell.protocol === "rest" ? want : { code: want.code, reason: want.reason };
    return JSON.stringify(got) === JSON.stringify(comparable)
      ? []
      : [`${titleOf(cell)}: ${JSON.stringify(got)}, not ${JSON.stringify(comparable)}`];
  });
  return found.flat();
}

const matrixTest = isRoot ? test : test.skip;

test("the matrix covers the complete contract", (t) => {
  t.deepEqual(
    methods.map((method) => `${method.parent.typeName}/${method.name}`).toSorted(),
    Object.keys(methodPolicies).toSorted(),
  );
  t.true(cells.length > 1_500, String(cells.length));
});

matrixTest(`every method rejects or admits every caller over every protocol${needsRoot}`, async (t) => {
  await using world = await createWorld();
  const call = async (cell: Cell, isSample: boolean): Promise<Outcome> =>
    rawCall(
      await world.targetOf(cell.identity),
      cell.method,
      cell.protocol,
      isSample ? world.sample(cell.method) : undefined,
    );
  const before = await world.snapshot();
  const assertNone = (found: readonly string[], what: string): void => {
    t.deepEqual(found.slice(0, 20), [], `${what}: ${found.length}`);
  };

  const refused = cells.filter(({ identity, method }) => refusalOf(identity, policyOf(method)) !== undefined);
  const refusal = (cell: Cell): Required<Outcome> =>
    refusalOf(cell.identity, policyOf(cell.method)) ?? unreadable;
  // If the gate were open, this call would reboot the host.
  const isHarmless = ({ method }: Cell): boolean => method !== SystemService.method.rebootSystem;
  assertNone(await deviations(refused, refusal, (cell) => call(cell, isHarmless(cell))), "refused");
  assertNone(
    await deviations(refused, refusal, (cell) => call(cell, false)),
    "refused before the body is read",
  );

  const admitted = cells.filter((cell) => !refused.includes(cell));
  assertNone(
    await deviations(
      admitted,
      () => unreadable,
      (cell) => call(cell, false),
    ),
    "admitted",
  );

  const foreign = cells.filter(({ identity, method }) => identity === "other user" && concernsApp(method));
  const isOffered = ({ capability }: MethodPolicy): boolean =>
    capability === "" || world.capabilities.includes(capability);
  const hiding = ({ method }: Cell): Required<Outcome> => (isOffered(policyOf(method)) ? hidden : notOffered);
  assertNone(await deviations(foreign, hiding, (cell) => call(cell, true)), "another user's app");

  t.deepEqual(await world.snapshot(), before, "nothing has changed");
  logCounts(t, { refused, admitted, foreign });
});

function logCounts(t: ExecutionContext, groups: Readonly<Record<string, readonly Cell[]>>): void {
  t.log(
    Object.entries(groups)
      .map(([name, { length }]) => `${length} ${name}`)
      .join(", "),
  );
}
