/** Limits of calls, the rules of messages, large errors in gRPC's trailers, and parts of handlers. */
import { setTimeout as wait } from "node:timers/promises";
import { type DescMessage, type MessageInitShape, create, fromJson, toBinary } from "@bufbuild/protobuf";
import { StructSchema } from "@bufbuild/protobuf/wkt";
import { type HandlerContext, createClient, createContextValues } from "@connectrpc/connect";
import test from "ava";
import {
  AppService,
  GetAppStatsRequestSchema,
  InstallAppRequestSchema,
  StreamAppStatsRequestSchema,
} from "../../../gen/svc/v1/app_pb.ts";
import { PruneDockerRequestSchema } from "../../../gen/svc/v1/docker_pb.ts";
import {
  DeletePathsRequestSchema,
  type WriteFileRequest,
  WriteFileRequestSchema,
} from "../../../gen/svc/v1/file_pb.ts";
import { SignalProcessRequestSchema } from "../../../gen/svc/v1/process_pb.ts";
import {
  ReplaceManagedSchedulesRequestSchema,
  UpsertScheduleRequestSchema,
} from "../../../gen/svc/v1/schedule_pb.ts";
import { IssueAccessTokenRequestSchema } from "../../../gen/svc/v1/token_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { hasMoreStructure } from "../../../src/lib/json.ts";
import { createAppService, statsFrames } from "../../../src/server/handlers/app-service.ts";
import { contentsOf, firstOf } from "../../../src/server/handlers/uploads.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { peekFirst } from "../../../src/server/rpc/connect/first-message.ts";
import { MessageStructure } from "../../../src/server/rpc/connect/message-structure.ts";
import { createPipeline } from "../../../src/server/rpc/pipeline.ts";
import { retainRequest } from "../../../src/server/rpc/request-memory.ts";
import { Validator } from "../../../src/server/rpc/rules.ts";
import { type UserContext, anonymous, userContextKey } from "../../../src/server/rpc/user-context.ts";
import { quoteValue } from "../../../src/server/rpc/value-rules.ts";
import { eventually } from "../../support/eventually.ts";
import { fakeServices } from "../http/support/fake-services.ts";
import { collectLog } from "../http/support/gateway.ts";
import { createInMemoryTransport } from "./support/in-memory-transport.ts";

// Limits of a user's concurrent calls and streams.

const peer = (uid: number): UserContext => ({
  uid,
  root: uid === 0,
  kind: "peer",
  ownerUid: uid,
  peerUid: uid,
});
const token = (tokenDigest: string): UserContext => ({
  uid: 0,
  root: true,
  kind: "access",
  ownerUid: 0,
  tokenDigest,
});

/** Calls and streams that last until `release`; two of each are allowed. */
function open(limits = { maxCallsPerUser: 2, maxStreamsPerUser: 2 }) {
  const released = Promise.withResolvers<undefined>();
  const { log } = collectLog();
  const pipeline = createPipeline({
    services: fakeServices({
      app: {
        async startApp() {
          await released.promise;
          return {};
        },
        async installApp({ detach }, context) {
          if (detach) {
            const kept = retainRequest(context);
            void released.promise.then(() => kept?.[Symbol.dispose]());
          } else await released.promise;
          return {};
        },
        async *streamAppLogs() {
          yield {};
          await released.promise;
        },
      },
    }),
    log,
    limits,
  });
  const clientOf = (user: UserContext) =>
    createClient(AppService, createInMemoryTransport({ pipeline, user, nextRequestId: () => "r" }));
  return {
    call: (user: UserContext, signal?: AbortSignal) =>
      clientOf(user).startApp({ id: "a" }, { ...(signal && { signal }) }),
    stream: (user: UserContext, signal?: AbortSignal) => {
      const lines = clientOf(user).streamAppLogs({ id: "a" }, { ...(signal && { signal }) });
      return lines[Symbol.asyncIterator]();
    },
    install: (user: UserContext, bytes: number, detach = false) =>
      clientOf(user).installApp({ spec: "a", detach, settings: { text: "x".repeat(bytes) } }),
    release: () => released.resolve(undefined),
  };
}

test("a call counts until its work has finished, even if its client has disconnected", async (t) => {
  const { call, release } = open();
  const one = peer(1000);
  for (let n = 0; n < 2; n++) {
    const leaving = new AbortController();
    const asked = call(one, leaving.signal);
    leaving.abort();
    await t.throwsAsync(asked);
  }
  const error = svcErrorOf(await t.throwsAsync(call(one)));
  t.is(error.reason, "too_many");
  release();
  await eventually(() => call(one));
});

for (const [name, one, other] of [
  ["a uid", peer(1000), peer(1001)],
  ["a token", token("aaaaaaaaaaaa"), token("bbbbbbbbbbbb")],
] as const) {
  test(`${name} has a limit of concurrent calls, independent of others`, async (t) => {
    const { call, release } = open();
    const running = [call(one), call(one), call(other), ...Array.from({ length: 5 }, () => call(peer(0)))];
    const error = svcErrorOf(await t.throwsAsync(call(one)));
    t.is(error.reason, "too_many");
    t.regex(error.message, /max_calls_per_user/);
    release();
    await Promise.all(running);
    await t.notThrowsAsync(call(one), "those have finished");
  });

  test(`${name} has a limit of concurrent streams, independent of its calls`, async (t) => {
    const { call, stream, release } = open();
    const first = new AbortController();
    const streams = [stream(one, first.signal), stream(one), stream(other)];
    for (const each of streams) t.false((await each.next()).done);
    const error = svcErrorOf(await t.throwsAsync(stream(one).next()));
    t.is(error.reason, "too_many");
    t.regex(error.message, /max_streams_per_user/);
    first.abort();
    await t.throwsAsync(streams[0]!.next());
    t.false((await stream(one).next()).done, "one has finished");
    const running = call(one);
    release();
    await t.notThrowsAsync(running);
  });
}

const manyCalls = { maxCallsPerUser: 256, maxStreamsPerUser: 128 };
const session: UserContext = {
  ...token("cccccccccccc"),
  uid: 1000,
  root: false,
  kind: "session",
  ownerUid: 1000,
};

for (const [name, detach] of [
  ["running calls", false],
  ["detached operations", true],
] as const) {
  test(`${name} of a user and of its sessions together hold at most 64 MiB of requests`, async (t) => {
    const { install, release } = open(manyCalls);
    const one = peer(1000);
    // 3 MiB each: a character counts as two bytes.
    const users = [...Array.from({ length: 11 }, () => one), ...Array.from({ length: 10 }, () => session)];
    const held = users.map((user) => install(user, 3 << 19, detach));
    if (detach) await Promise.all(held);
    for (const user of [one, session]) {
      const error = svcErrorOf(await t.throwsAsync(install(user, 3 << 19, detach)));
      t.is(error.reason, "too_many");
      t.regex(error.message, /at most 67108864 are allowed/);
    }
    await t.notThrowsAsync(install(one, 1, true), "a small request is accepted");
    await t.notThrowsAsync(install(peer(1001), 3 << 19, true), "another user has its own bytes");
    await t.notThrowsAsync(install(peer(0), 3 << 19, true), "root has no limit");
    release();
    await Promise.all(held);
    await t.notThrowsAsync(install(one, 3 << 19), "the finished calls released their bytes");
  });
}

test("calls and streams of a user and of its sessions count together", async (t) => {
  const { call, stream, release } = open();
  const one = peer(1000);
  const running = [call(one), call(session)];
  const streams = [stream(one), stream(session)];
  for (const each of streams) t.false((await each.next()).done);
  for (const user of [one, session]) {
    t.is(svcErrorOf(await t.throwsAsync(call(user))).reason, "too_many");
    t.is(svcErrorOf(await t.throwsAsync(stream(user).next())).reason, "too_many");
  }
  const rootSession: UserContext = { ...session, uid: 0, root: true, ownerUid: 0 };
  running.push(...Array.from({ length: 5 }, () => call(peer(0))), call(rootSession));
  release();
  await t.notThrowsAsync(Promise.all(running), "root's calls on the socket are not its sessions'");
});

// The rules of a message, and the limit of its structure.

const validator = new Validator();

function violationsOf<T extends DescMessage>(type: T, init: MessageInitShape<T>): string[] {
  try {
    validator.check(type, create(type, init));
    return [];
  } catch (error) {
    const { violations = [] } = (error as SvcError<"invalid_request">).payload ?? {};
    return violations.map(({ field, description }) => `${field ?? ""}: ${description ?? ""}`);
  }
}

const cases: [name: string, type: DescMessage, init: object, expected: string[]][] = [
  ["a required string that is empty", InstallAppRequestSchema, {}, ["spec: is required"]],
  ["a required string that is there", InstallAppRequestSchema, { spec: "hello" }, []],
  [
    "a string that is too long",
    InstallAppRequestSchema,
    { spec: "hello", name: "x".repeat(65) },
    ["name: must have at most 64 characters, not 65"],
  ],
  [
    "characters count, not code units",
    InstallAppRequestSchema,
    { spec: "hello", source: "🚀".repeat(64) },
    [],
  ],
  [
    "a number below its bound",
    IssueAccessTokenRequestSchema,
    { ttlSecs: 0 },
    ["ttl_secs: must be at least 1, not 0"],
  ],
  [
    "a number above its bound",
    IssueAccessTokenRequestSchema,
    { ttlSecs: 86401 },
    ["ttl_secs: must be at most 86400, not 86401"],
  ],
  ["an optional number that is absent", IssueAccessTokenRequestSchema, {}, []],
  [
    "a required bool that is not said",
    PruneDockerRequestSchema,
    { target: "images" },
    ["danglingOnly: is required"],
  ],
  ["a required bool that is false", PruneDockerRequestSchema, { target: "images", danglingOnly: false }, []],
  [
    "a word outside of its set",
    SignalProcessRequestSchema,
    { pid: 7, signal: "segv" },
    ['signal: must be one of term, kill, hup, int, stop, cont, usr1, usr2, not "segv"'],
  ],
  ["an empty required list", DeletePathsRequestSchema, { paths: [] }, ["paths: is required"]],
  [
    "too many entries",
    GetAppStatsRequestSchema,
    { ids: Array.from({ length: 1001 }, () => "a") },
    ["ids: must have at most 1000 entries, not 1001"],
  ],
  [
    "an entry of a list",
    GetAppStatsRequestSchema,
    { ids: ["a", ""] },
    ["ids[1]: must have at least 1 characters, not 0"],
  ],
  [
    "one violation for each of several fields",
    InstallAppRequestSchema,
    { name: "x".repeat(65), tag: "y".repeat(256) },
    [
      "spec: is required",
      "name: must have at most 64 characters, not 65",
      "tag: must have at most 255 characters, not 256",
    ],
  ],
];

for (const [name, type, init, expected] of cases) {
  test(name, (t) => t.deepEqual(violationsOf(type, init as never), expected));
}

const job = { trigger: "hourly", action: { type: "http", url: "https://example.org/" } };

test("a nested message is named by its path", (t) => {
  const found = violationsOf(UpsertScheduleRequestSchema, {
    id: "nightly",
    ...job,
    action: { ...job.action, url: "ftp://example.org" },
  });
  t.true(
    found.some((line) => line.includes('url: must be an http or https URL, not "ftp://example.org"')),
    found.join("\n"),
  );
});

test("map keys and values are named by their key", (t) => {
  const found = violationsOf(ReplaceManagedSchedulesRequestSchema, {
    managedBy: "platform",
    schedules: [
      { id: "a", ...job, action: { ...job.action, headers: { "bad key": "x", Accept: "y".repeat(8193) } } },
    ],
  });
  t.true(
    found.some((line) =>
      line.startsWith('schedules[0].action.headers["bad key"]: must be the name of an HTTP header'),
    ),
    found.join("\n"),
  );
  t.true(
    found.includes('schedules[0].action.headers["Accept"]: must have at most 8192 characters, not 8193'),
    found.join("\n"),
  );
});

test("patterns match the whole value", (t) => {
  const found = violationsOf(UpsertScheduleRequestSchema, { id: "ok\nevil", ...job });
  t.true(
    found.some((line) =>
      line.startsWith(
        "id: must be 1 to 64 letters, digits, '.', '_' and '-', but not '.' or '..', not \"ok\\nevil\"",
      ),
    ),
    found.join("\n"),
  );
});

test("a response stays small whatever is sent", (t) => {
  const ids = Array.from({ length: 1000 }, () => "");
  t.is(violationsOf(GetAppStatsRequestSchema, { ids }).length, 64);
});

test("check throws invalid_request with the violations as payload", (t) => {
  const error = t.throws(() => validator.check(InstallAppRequestSchema, create(InstallAppRequestSchema)), {
    instanceOf: SvcError,
  });
  t.is(error.code, "invalid_argument");
  t.deepEqual((error as SvcError<"invalid_request">).payload, {
    violations: [{ field: "spec", description: "is required", missing: true }],
  });
});

const shown: [value: unknown, expected: string][] = [
  ["plain", '"plain"'],
  ["a\u001b[31mred\u0007", '"a\\u001b[31mred\\u0007"'],
  ["\u009b\u202e\u2028", '"\\u009b\\u202e\\u2028"'],
  ["x".repeat(65), `"${"x".repeat(64)}…"`],
  [12n, "12"],
  [new Uint8Array(3), "3 bytes"],
];
for (const [value, expected] of shown) {
  test(`a message shows ${expected}`, (t) => t.is(quoteValue(value), expected));
}

// Elements that are counted in a message before it is parsed.

const structure = new MessageStructure();
const settings = (json: object): Uint8Array =>
  toBinary(InstallAppRequestSchema, fromJson(InstallAppRequestSchema, { settings: json } as never));

for (const [what, desc, bytes, count] of [
  ["nothing", InstallAppRequestSchema, new Uint8Array(), 0],
  ["text", InstallAppRequestSchema, settings({ a: "x".repeat(100_000) }), 2 + 2 + 1 + 2 + 1],
  [
    "empty lists",
    StructSchema,
    toBinary(StructSchema, fromJson(StructSchema, { a: [[], []] })),
    2 + 1 + 2 + 2 + 2 * 4,
  ],
  [
    "messages",
    ReplaceManagedSchedulesRequestSchema,
    toBinary(
      ReplaceManagedSchedulesRequestSchema,
      create(ReplaceManagedSchedulesRequestSchema, { managedBy: "m", schedules: [{ id: "a" }, {}] }),
    ),
    1 + 3 + 2,
  ],
  ["fields that nobody knows", InstallAppRequestSchema, Buffer.from("f80100f80100f80100", "hex"), 3],
] as const) {
  test(`a binary message of ${what} is counted`, (t) => {
    t.false(structure.hasMore(desc, bytes, count));
    if (count > 0) t.true(structure.hasMore(desc, bytes, count - 1));
  });
}

test("an invalid message has no count above its size: its parser rejects it", (t) => {
  for (const bytes of ["0aff", "07", "0affffffffff0f", "0b0b0b"])
    t.false(structure.hasMore(InstallAppRequestSchema, Buffer.from(bytes, "hex"), 100), bytes);
  // Deeper than protobuf-es goes: the counter does not exhaust the stack.
  let deep: Buffer = Buffer.alloc(0);
  for (let level = 0; level < 5_000; level++)
    deep = Buffer.concat([Buffer.from("32", "hex"), varint(deep.length), deep]);
  t.false(structure.hasMore(StructSchema, deep, 100_000));
});

function varint(value: number): Buffer {
  const bytes = [];
  for (let left = value; bytes.length === 0 || left > 0; left >>>= 7)
    bytes.push((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
  return Buffer.from(bytes);
}

for (const [json, count] of [
  ['""', 2],
  ["[]", 2],
  ['{"a":1,"b":[null,true]}', 12],
  [String.raw`"[{,:}]\"[[\\"`, 2],
  [String.raw`["\\\"[",","]`, 7],
  ['"[[[[', 0],
] as const) {
  test(`JSON structure is counted outside of strings: ${json}`, (t) => {
    t.false(hasMoreStructure(json, count));
    if (count > 0) t.true(hasMoreStructure(json, count - 1));
  });
}

// Parts of handlers: statistics and uploads.

test("frames keep their interval when a sample is faster than the one before", async (t) => {
  const samplesMs = [300, 0, 0, 300, 0];
  const end = new AbortController();
  const frames = statsFrames(
    async () => {
      await wait(samplesMs.shift() ?? 0);
      return 0;
    },
    400,
    end.signal,
  );
  let beforeMs: number | undefined;
  for (let frame = 0; frame < 5; frame++) {
    await frames.next();
    const nowMs = performance.now();
    // Timers may be a millisecond early.
    if (beforeMs !== undefined) t.true(nowMs - beforeMs > 395, `${nowMs - beforeMs} ms`);
    beforeMs = nowMs;
  }
  end.abort();
});

test("a client that constantly requests frames gets one per second", async (t) => {
  const apps = { reports: { stats: () => Promise.resolve([]) } };
  const others = [{}, {}, {}, {}, {}, { define: () => ({}) }];
  const { streamAppStats } = createAppService(
    ...([apps, ...others] as unknown as Parameters<typeof createAppService>),
  );
  const end = new AbortController();
  const values = createContextValues().set(userContextKey, anonymous);
  const context = { values, signal: end.signal } as HandlerContext;
  const request = create(StreamAppStatsRequestSchema, { minIntervalSecs: 0 });
  const frames = streamAppStats(request, context)[Symbol.asyncIterator]();
  const beganMs = performance.now();
  for (let frame = 0; frame < 2; frame++) await frames.next();
  // Timers may be a millisecond early.
  t.true(performance.now() - beganMs > 995, "one second apart");
  end.abort();
});

test("the buffered bytes of a stalled sender are released when the call ends", async (t) => {
  async function* silent() {
    yield create(WriteFileRequestSchema, { path: "/tmp", content: { data: Buffer.from("begin") } });
    await new Promise(() => undefined);
  }
  const call = new AbortController();
  const stream = await peekFirst(silent(), call.signal);
  const { first, all } = await firstOf(stream.all as AsyncIterable<WriteFileRequest>);
  t.is(first.path, "/tmp");
  const contents = contentsOf(all);
  t.is(Buffer.from((await contents.next()).value as Uint8Array).toString(), "begin");
  const next = contents.next();
  call.abort(new Error("the call is over"));
  await t.throwsAsync(next, { message: "the call is over" });
});
