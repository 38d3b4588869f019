/** The pipeline without a socket: through the in-memory transport and directly. */
import { create, type DescMethodClientStreaming, type DescMethodServerStreaming } from "@bufbuild/protobuf";
import { ConnectError, createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService, GetAppRequestSchema, InstallAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import type { GatedCaller } from "../../../src/server/rpc/access.ts";
import { type AuditRecord, auditTarget } from "../../../src/server/rpc/audit.ts";
import { type BoundService, implement } from "../../../src/server/rpc/bound-service.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { createInMemoryTransport } from "./support/in-memory-transport.ts";
import { createPipeline, type Pipeline, type PipelineOptions } from "../../../src/server/rpc/pipeline.ts";
import { type UserContext, userOf } from "../../../src/server/rpc/user-context.ts";
import { collectLog } from "../http/support/gateway.ts";
import { type FakeHandlers, fakeServices } from "../http/support/fake-services.ts";
import { bindService } from "../../support/bind-service.ts";

const root: UserContext = { uid: 0, root: true, kind: "local", ownerUid: 0 };
const user: UserContext = {
  uid: 1000,
  root: false,
  kind: "peer",
  ownerUid: 1000,
  peerUid: 1000,
};
const primary: UserContext = { ...root, kind: "primary", tokenDigest: "aaaaaaaaaaaa" };
const access: UserContext = { ...root, kind: "access", tokenDigest: "bbbbbbbbbbbb" };
const replaced: UserContext = { ...root, kind: "replaced", tokenDigest: "cccccccccccc" };

function open(handlers: FakeHandlers = {}, options: Partial<PipelineOptions> = {}) {
  const { log, lines } = collectLog();
  const audits: AuditRecord[] = [];
  const pipeline = createPipeline({
    services: fakeServices(handlers),
    log,
    audit: (record) => audits.push(record),
    ...options,
  });
  return { pipeline, audits, lines };
}

function transport(pipeline: Pipeline, caller: UserContext) {
  let count = 0;
  return createInMemoryTransport({ pipeline, user: caller, nextRequestId: () => `r${++count}` });
}

const levels: [caller: string, UserContext, level: string, reason: string | undefined][] = [
  ["a user peer", user, "USER", undefined],
  ["a user peer", user, "ROOT", "root_required"],
  ["a user peer", user, "PRIMARY", "root_required"],
  ["root", root, "ROOT", undefined],
  ["root", root, "PRIMARY", undefined],
  ["the primary token", primary, "PRIMARY", undefined],
  ["the replaced primary", replaced, "PRIMARY", undefined],
  ["an access token", access, "USER", undefined],
  ["an access token", access, "ROOT", undefined],
  ["an access token", access, "PRIMARY", "token_denied"],
];
const methodOf = {
  USER: DaemonService.method.getStatus,
  ROOT: ProcessService.method.signalProcess,
  PRIMARY: TokenService.method.issueAccessToken,
} as const;

for (const [name, caller, level, reason] of levels) {
  test(`${name} on ${level}: ${reason ?? "may"}`, (t) => {
    const { pipeline } = open();
    const gate = (): void =>
      pipeline.gate(methodOf[level as keyof typeof methodOf], { user: caller, requestId: "r" }, "test");
    if (reason === undefined) t.notThrows(gate);
    else t.like(t.throws(gate, { instanceOf: SvcError }), { code: "permission_denied", reason });
  });
}

test("a denial states what was requested", (t) => {
  const { pipeline } = open();
  const refusal = (method: Parameters<Pipeline["gate"]>[0], caller: UserContext) =>
    t.throws(() => pipeline.gate(method, { user: caller, requestId: "r" }, "test")).message;
  t.is(
    refusal(ProcessService.method.signalProcess, user),
    "sending a signal to a process requires root: use sudo, or a token",
  );
  t.is(
    refusal(TokenService.method.issueAccessToken, access),
    "issuing an access token requires the primary token, not an access token",
  );
});

test("the gate admits a caller to one method, whose call is not checked again", async (t) => {
  const { pipeline } = open({
    process: { signalProcess: () => ({}) },
    token: { issueAccessToken: () => t.fail() },
  });
  const { signalProcess } = ProcessService.method;
  const { issueAccessToken } = TokenService.method;
  const caller: GatedCaller = { user: root, requestId: "r" };
  pipeline.gate(signalProcess, caller, "test");
  t.is(caller.admittedTo, signalProcess);
  // The caller is not identified again.
  const call = { ...caller, user, protocolName: "test" };
  const request = create(signalProcess.input, { pid: 1, signal: "term" });
  await t.notThrowsAsync(pipeline.invoke(signalProcess, request, call));
  const refused = pipeline.invoke(issueAccessToken, create(issueAccessToken.input), call);
  t.is((await t.throwsAsync(refused, { instanceOf: SvcError })).reason, "root_required");
});

test("access is also checked without the gate", async (t) => {
  const { pipeline, audits } = open({ process: { signalProcess: () => t.fail() } });
  const client = createClient(ProcessService, transport(pipeline, user));
  const error = await t.throwsAsync(client.signalProcess({}), { instanceOf: ConnectError });
  t.is(svcErrorOf(error).reason, "root_required");
  t.like(audits[0], {
    result: "permission_denied",
    reason: "root_required",
    requestId: "r1",
    protocolName: "in-memory",
  });
});

test("access to a stream is also checked without the gate", async (t) => {
  const { pipeline } = open();
  const client = createClient(DockerService, transport(pipeline, user));
  const error = await t.throwsAsync(
    async () => {
      for await (const _event of client.streamDockerEvents({}));
    },
    { instanceOf: ConnectError },
  );
  t.is(svcErrorOf(error).reason, "root_required");
});

test("handlers receive the caller, a signal and the deadline", async (t) => {
  const { pipeline } = open({
    daemon: {
      getStatus(_request, context) {
        t.false(context.signal.aborted);
        t.true((context.timeoutMs() ?? 0) > 1000);
        t.is(context.requestHeader.get("x"), null);
        return { hostname: String(userOf(context).uid) };
      },
    },
  });
  const client = createClient(DaemonService, transport(pipeline, user));
  t.is((await client.getStatus({}, { timeoutMs: 5000 })).hostname, String(user.uid));
});

for (const [name, fail] of [
  [
    "throws",
    () => {
      throw new Error("at /var/lib/svc/svc.db");
    },
  ],
  [
    "throws a string",
    () => {
      // eslint-disable-next-line @typescript-eslint/only-throw-error -- whatever a library may throw
      throw "at /var/lib/svc";
    },
  ],
  [
    "throws undefined",
    () => {
      // eslint-disable-next-line @typescript-eslint/only-throw-error -- whatever a library may throw
      throw undefined;
    },
  ],
  ["rejects", () => Promise.reject(new TypeError("x is not a function"))],
] as const) {
  test(`a handler that ${name} ends only its own call`, async (t) => {
    const { pipeline, lines } = open({ app: { getApp: fail } });
    const client = createClient(AppService, transport(pipeline, user));
    const error = svcErrorOf(await t.throwsAsync(client.getApp({ id: "x" }), { instanceOf: ConnectError }));
    t.is(error.code, "internal");
    t.is(error.message, "internal error; the daemon's log has the cause under request r1");
    t.is(lines.filter(({ level }) => level === "error").length, 1);
  });
}

for (const [name, thrower] of [
  [
    "at once",
    () => {
      throw new Error("boom");
    },
  ],
  [
    "later",
    async function* () {
      yield { lines: [] };
      throw new Error("boom");
    },
  ],
] as const) {
  test(`a stream that fails ${name} is internal`, async (t) => {
    const { pipeline } = open({ app: { streamAppLogs: thrower as never } });
    const client = createClient(AppService, transport(pipeline, user));
    const error = await t.throwsAsync(
      async () => {
        for await (const _lines of client.streamAppLogs({ id: "x" }));
      },
      { instanceOf: ConnectError },
    );
    t.is(svcErrorOf(error).code, "internal");
  });
}

test("a handler's own timeout is deadline_exceeded", async (t) => {
  const { pipeline } = open({
    app: {
      getApp: async () => {
        const signal = AbortSignal.timeout(5);
        // The deadline's timer keeps no process running.
        const alive = setTimeout(() => undefined, 5000);
        try {
          await new Promise((_resolve, reject) =>
            signal.addEventListener("abort", () => reject(signal.reason as Error)),
          );
        } finally {
          clearTimeout(alive);
        }
        return {};
      },
    },
  });
  const client = createClient(AppService, transport(pipeline, user));
  const error = await t.throwsAsync(client.getApp({ id: "x" }), { instanceOf: ConnectError });
  t.is(svcErrorOf(error).code, "deadline_exceeded");
});

test("closing a stream ends its handler", async (t) => {
  const ended = Promise.withResolvers<boolean>();
  const { pipeline } = open({
    app: {
      async *streamAppLogs(_request, { signal }) {
        try {
          for (;;) {
            await Promise.resolve();
            yield { lines: [] };
          }
        } finally {
          ended.resolve(signal.aborted);
        }
      },
    },
  });
  const call = { user, requestId: "r", protocolName: "test" };
  const method = AppService.method.streamAppLogs as DescMethodServerStreaming;
  for await (const _lines of pipeline.invokeStream(method, create(method.input, { id: "x" }), call)) break;
  t.true(await ended.promise);
});

test("revoking an identity ends its calls", async (t) => {
  const ended = new AbortController();
  const { pipeline } = open({ app: { getApp: () => new Promise(() => undefined) } });
  const client = createClient(AppService, transport(pipeline, { ...access, ended: ended.signal }));
  const answer = client.getApp({ id: "x" });
  ended.abort(new SvcError("unauthenticated", "the token was revoked"));
  t.like(svcErrorOf(await t.throwsAsync(answer, { instanceOf: ConnectError })), {
    code: "unauthenticated",
    message: "the token was revoked",
  });
});

test("the first message of a request stream is validated, also of an empty stream", async (t) => {
  const { pipeline } = open({ file: { writeFile: () => t.fail() } });
  const call = { user, requestId: "r", protocolName: "test" };
  const method = FileService.method.writeFile as DescMethodClientStreaming;
  const none = (async function* (): AsyncGenerator<never> {})();
  const error = await t.throwsAsync(pipeline.invoke(method, none, call), {
    instanceOf: SvcError,
  });
  t.like(error, { reason: "invalid_request", message: "path is required" });
});

test("a request stream that is closed because its call has ended is not a defect", async (t) => {
  const broken = Promise.withResolvers<never>();
  const { pipeline, audits, lines } = open({
    file: {
      writeFile: async (requests) => {
        try {
          for await (const _ of requests);
        } finally {
          await broken.promise.catch(() => undefined);
        }
        return {};
      },
    },
  });
  async function* sent() {
    yield create(FileService.method.writeFile.input, { path: "/tmp" });
    await broken.promise;
  }
  const ended = new AbortController();
  const call = { user, requestId: "r", protocolName: "test", signal: ended.signal };
  const answer = pipeline.invoke(FileService.method.writeFile, sent(), call);
  await new Promise((resolve) => setImmediate(resolve));
  ended.abort();
  await t.throwsAsync(answer, { message: "the call was canceled" });
  broken.reject(new Error("Premature close"));
  await new Promise((resolve) => setImmediate(resolve));
  t.like(audits, [{ result: "canceled" }]);
  t.deepEqual(
    lines.filter(({ level }) => level === "error"),
    [],
  );
});

test("only changing calls are audited, with their targets and without passwords", async (t) => {
  const { pipeline, audits } = open({ app: { getApp: () => ({}), installApp: () => ({}) } });
  const client = createClient(AppService, transport(pipeline, { ...user, ownerUid: 5 }));
  await client.getApp({ id: "hello" });
  await client.installApp({ spec: "https://ann:secret@example.org/hello.git" });
  t.deepEqual(
    audits.map(({ method, target, result, requestId, user: who }) => ({
      method,
      target,
      result,
      requestId,
      ownerUid: who.ownerUid,
    })),
    [
      {
        method: "svc.v1.AppService/InstallApp",
        target: "https://***@example.org/hello.git",
        result: "ok",
        requestId: "r2",
        ownerUid: 5,
      },
    ],
  );
});

test("a flood of one user's calls is audited, but not logged, and root's calls still are", async (t) => {
  const { pipeline, audits, lines } = open({ app: { startApp: ({ id }) => ({ id }) } });
  const flood = createClient(AppService, transport(pipeline, user));
  for (let call = 0; call < 300; call++) await flood.startApp({ id: "hello" });
  t.is(audits.length, 300);
  t.true(lines.length > 256 && lines.length < 290, `${lines.length} lines`);
  t.is(lines.filter(({ message }) => message.includes("too many changing calls")).length, 1);
  const before = lines.length;
  for (const caller of [root, { ...user, uid: 1001, ownerUid: 1001 }])
    await createClient(AppService, transport(pipeline, caller)).startApp({ id: "hello" });
  t.is(lines.length, before + 2);
});

test("an audit that throws does not affect the call", async (t) => {
  const { pipeline, lines } = open(
    { app: { startApp: ({ id }) => ({ id }) } },
    {
      audit: () => {
        throw new Error("disk full");
      },
    },
  );
  t.is((await createClient(AppService, transport(pipeline, user)).startApp({ id: "x" })).id, "x");
  t.true(lines.some(({ level }) => level === "error"));
});

test("capabilities are those of the implemented methods", (t) => {
  t.deepEqual(open().pipeline.capabilities, []);
  t.deepEqual(open({ app: { cloneApp: () => ({}), getAppStats: () => ({}) } }).pipeline.capabilities, [
    "app.clone",
    "app.stats",
  ]);
});

test("a method without a policy or a handler is rejected", (t) => {
  const services = [
    bindService(DaemonService, {
      getStatus: () => ({}),
      getDaemonMetrics: () => ({}),
      reloadConfig: () => ({}),
    }),
  ];
  const ask = (options: Partial<PipelineOptions>): unknown =>
    open({}, options).pipeline.methodAt("/svc.v1.DaemonService/GetStatus");
  t.throws(() => ask({ services, policies: {} }), { message: /has no access policy/ });
  t.throws(() => ask({ services: [bindService(DaemonService, {} as never)] }), {
    message: /has no handler/,
  });
});

test("a service is checked with the first call of its methods", async (t) => {
  let looks = 0;
  const look = (): typeof AppService => {
    looks += 1;
    return AppService;
  };
  const apps = fakeServices({ app: { getApp: ({ id }) => ({ id }) } }).find(
    ({ service }) => service === AppService,
  );
  t.truthy(apps);
  const bound = implement(AppService.typeName, look, apps?.impl as never);
  const { pipeline } = open({}, { services: [bound] });
  t.deepEqual(pipeline.capabilities, []);
  t.false(pipeline.isPublic("/v1/apps"));
  t.is(pipeline.methodAt("/svc.v1.DaemonService/GetStatus"), undefined);
  t.is(looks, 0);
  t.is(pipeline.methodAt("/svc.v1.AppService/GetApp"), AppService.method.getApp);
  t.true(looks > 0);
  const call = { user, requestId: "r", protocolName: "test" };
  const { pipeline: other } = open({}, { services: [bound] });
  t.like(await other.invoke(AppService.method.getApp, create(GetAppRequestSchema, { id: "hello" }), call), {
    id: "hello",
  });
});

test("a service must match its name and its policies", (t) => {
  const late = (name: string): BoundService => implement(name, () => DaemonService, {} as never);
  t.throws(() => open({}, { services: [late("svc.v1.X")] }).pipeline.methodAt("/svc.v1.X/GetStatus"), {
    message: "svc.v1.DaemonService is bound as svc.v1.X",
  });
  const daemon = open({}, { services: [late("svc.v1.DaemonService")] }).pipeline;
  for (let time = 0; time < 2; time += 1)
    t.throws(() => daemon.methodAt("/svc.v1.DaemonService/GetStatus"), { message: /has no handler/ });
});

test("a call has little overhead", async (t) => {
  const { pipeline } = open({ app: { getApp: ({ id }) => ({ id }) } });
  const call = { user, requestId: "r", protocolName: "test" };
  const request = create(GetAppRequestSchema, { id: "hello" });
  const rounds = 2_000;
  const invokeAll = async (): Promise<void> => {
    for (let n = 0; n < rounds; n++) await pipeline.invoke(AppService.method.getApp, request, call);
  };
  await invokeAll();
  // CPU time, because a call waits for the CPU on a busy host.
  const before = process.cpuUsage();
  await invokeAll();
  const { user: own, system } = process.cpuUsage(before);
  const microseconds = (own + system) / rounds;
  t.true(microseconds < 500, `${microseconds.toFixed(1)} µs`);
});

// The target of an audited call.

for (const [spec, target] of [
  ["https://user:secret@host/x", "https://***@host/x"],
  ["https://user:p@secret@host/x", "https://***@host/x"],
  ["https://user:p?@secret@host/x", "https://***@host/x"],
  ["https://host/a@b?token=secret", "https://host/a@b?***"],
] as const)
  test(`the credentials of ${spec} are masked`, (t) => {
    t.is(auditTarget(create(InstallAppRequestSchema, { spec })), target);
  });
