/** Messages over every protocol: the same calls, compressed or not, and with many elements. */
import { request as requestHttp, type IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectSocket } from "node:net";
import { text } from "node:stream/consumers";
import { gunzipSync, gzipSync } from "node:zlib";
import {
  create,
  fromBinary,
  fromJsonString,
  toBinary,
  toJsonString,
  fromJson,
  type JsonValue,
} from "@bufbuild/protobuf";
import { createClient, ConnectError, type Transport } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import test from "ava";
import {
  AppService,
  AppSchema,
  StartAppRequestSchema,
  InstallAppRequestSchema,
} from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { ReplaceManagedSchedulesRequestSchema, ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { nextEvent } from "../../support/eventually.ts";
import { listenersUnderTest, protocols, rest, transportTo } from "./support/clients.ts";
import { openGateway, type TestGateway } from "./support/gateway.ts";
import type { FakeHandlers } from "./support/fake-services.ts";

// The same calls over every protocol and both listeners reach the same handler in the same way.

const handlers: FakeHandlers = {
  app: {
    startApp: () => {
      throw new SvcError("owned_by_app", "no", { payload: { appId: "hello" } });
    },
    stopApp: () => {
      throw new Error("secret /var/lib/svc/path");
    },
    async *streamAppLogs({ id, tail }) {
      for (let n = 0; n < (tail ?? 0); n++) {
        await Promise.resolve();
        yield { lines: [{ text: `${id} ${n}` }] };
      }
    },
  },
  file: {
    async writeFile(requests) {
      let size = 0;
      let path = "";
      for await (const request of requests) {
        path ||= request.path;
        size += request.content?.data.length ?? 0;
      }
      return { name: path, sizeBytes: BigInt(size) };
    },
  },
};

for (const listener of listenersUnderTest) {
  for (const protocol of protocols) {
    const title = (what: string): string => `${protocol} on ${listener}: ${what}`;

    test(title("a unary call knows its caller"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(DaemonService, transportTo(gateway, protocol, listener));
      const status = await client.getStatus({});
      t.is(status.version, listener === "TCP" ? "primary" : "peer");
      t.is(status.caller?.uid, process.getuid?.());
    });

    test(title("a stream arrives in order"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(AppService, transportTo(gateway, protocol, listener));
      const texts: string[] = [];
      for await (const { lines } of client.streamAppLogs({ id: "hello", tail: 3 })) {
        texts.push(...lines.map((line) => line.text));
      }
      t.deepEqual(texts, ["hello 0", "hello 1", "hello 2"]);
    });

    test(title("a request stream arrives whole"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(FileService, transportTo(gateway, protocol, listener));
      const entry = await client.writeFile(
        (async function* () {
          for (let n = 0; n < 10; n++) {
            await Promise.resolve();
            yield { path: "/tmp/x", content: { data: new Uint8Array(10_000) } };
          }
        })(),
      );
      t.is(entry.sizeBytes, 100_000n);
    });

    test(title("a domain error keeps code, reason and payload"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(AppService, transportTo(gateway, protocol, listener));
      const error = svcErrorOf(
        await t.throwsAsync(client.startApp({ id: "hello" }), { instanceOf: ConnectError }),
      );
      t.like(error, { code: "failed_precondition", reason: "owned_by_app", message: "no" });
      t.like(error.payload, { appId: "hello" });
    });

    test(title("a defect answers with a request id and nothing of its own"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(AppService, transportTo(gateway, protocol, listener));
      const error = svcErrorOf(
        await t.throwsAsync(client.stopApp({ id: "hello" }), { instanceOf: ConnectError }),
      );
      t.is(error.reason, "internal");
      t.notRegex(error.message, /secret|var/);
      const { requestId } = error.payload as { requestId: string };
      const line = gateway.lines.find(({ level }) => level === "error");
      t.is(line?.details["requestId"], requestId);
      t.regex(String(line?.details["err"]), /secret/);
    });

    test(title("broken rules name their fields"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(AppService, transportTo(gateway, protocol, listener));
      const error = svcErrorOf(await t.throwsAsync(client.startApp({}), { instanceOf: ConnectError }));
      t.like(error.payload, { violations: [{ field: "id", description: "is required" }] });
    });

    test(title("what comes later is unimplemented, after validation"), async (t) => {
      await using gateway = await openGateway({ handlers });
      const client = createClient(AppService, transportTo(gateway, protocol, listener));
      const later = svcErrorOf(
        await t.throwsAsync(client.removeApp({ id: "x" }), { instanceOf: ConnectError }),
      );
      t.like(later, { code: "unimplemented", reason: "not_implemented" });
      const invalid = svcErrorOf(await t.throwsAsync(client.removeApp({}), { instanceOf: ConnectError }));
      t.is(invalid.code, "invalid_argument");
    });

    if (listener === "TCP") {
      test(title("an unknown token is unauthenticated"), async (t) => {
        await using gateway = await openGateway({ handlers });
        for (const token of ["", "svcp_wrong"]) {
          const client = createClient(AppService, transportTo(gateway, protocol, listener, { token }));
          const unary = svcErrorOf(
            await t.throwsAsync(client.startApp({ id: "x" }), { instanceOf: ConnectError }),
          );
          t.like(unary, { code: "unauthenticated", reason: "unauthenticated" });
          const stream = client.streamAppLogs({ id: "x" })[Symbol.asyncIterator]();
          const streamed = svcErrorOf(await t.throwsAsync(stream.next(), { instanceOf: ConnectError }));
          t.like(streamed, { code: "unauthenticated", reason: "unauthenticated" });
        }
        t.deepEqual(
          gateway.audits.map(({ method, user, result }) => [method, user.kind, result]),
          Array.from({ length: 2 }, () => ["svc.v1.AppService/StartApp", "anonymous", "unauthenticated"]),
        );
      });
    }
  }

  test(`REST on ${listener}: the same calls`, async (t) => {
    await using gateway = await openGateway({ handlers });
    const status = await rest(gateway, "/v1/status", { listener });
    t.is(status.status, 200);
    t.is(status.json.version, listener === "TCP" ? "primary" : "peer");
    t.regex(String(status.headers["x-request-id"]), /^[0-9a-f]{8}-/);

    const owned = await rest(gateway, "/v1/apps/hello/start", { method: "POST", listener });
    t.is(owned.status, 409);
    t.deepEqual(owned.json, {
      error: "no",
      code: "failed_precondition",
      reason: "owned_by_app",
      owned_by_app: { app_id: "hello" },
    });

    const defect = await rest(gateway, "/v1/apps/hello/stop", { method: "POST", listener });
    t.is(defect.status, 500);
    t.is(defect.json.internal.request_id, defect.headers["x-request-id"]);
    t.notRegex(defect.text, /secret|var/);

    const later = await rest(gateway, "/v1/apps/hello", { method: "DELETE", listener });
    t.is(later.status, 501);

    const upload = await rest(gateway, "/v1/files/content?path=/tmp/x", {
      method: "PUT",
      body: "x".repeat(1000),
      headers: { "content-type": "application/octet-stream" },
      listener,
    });
    t.is(upload.status, 200, upload.text);
    t.deepEqual(
      gateway.audits.map(({ method, target, result }) => [method.split("/")[1], target, result]),
      [
        ["StartApp", "hello", "failed_precondition"],
        ["StopApp", "hello", "internal"],
        ["RemoveApp", "hello", "unimplemented"],
        ["WriteFile", "/tmp/x", "ok"],
      ],
    );
  });
}

// Messages may be compressed in both directions.

/** Large enough to be worth compressing. */
const name = "long ".repeat(1000);
const starting: FakeHandlers = { app: { startApp: ({ id }) => ({ id, name }) } };
const request = create(StartAppRequestSchema, { id: "hello" });
const path = "/svc.v1.AppService/StartApp";

test("Connect: a compressed request is read, and its response is compressed if the client accepts it", async (t) => {
  await using gateway = await openGateway({ handlers: starting });
  const answer = await fetch(`${gateway.url}${path}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${gateway.token}`,
      "content-type": "application/json",
      "content-encoding": "gzip",
      "accept-encoding": "gzip",
    },
    body: gzipSync(toJsonString(StartAppRequestSchema, request)),
  });
  t.is(answer.headers.get("content-encoding"), "gzip");
  // fetch has decompressed it.
  const app = fromJsonString(AppSchema, await answer.text());
  t.deepEqual([app.id, app.name], ["hello", name]);
});

test("Connect over the socket: a response is not compressed because it stays on this host", async (t) => {
  await using gateway = await openGateway({ handlers: starting });
  const headers = {
    authorization: `Bearer ${gateway.token}`,
    "content-type": "application/json",
    "accept-encoding": "gzip",
  };
  const sent = requestHttp({ socketPath: gateway.socketPath, method: "POST", path, headers });
  sent.end(toJsonString(StartAppRequestSchema, request));
  const [response] = (await nextEvent(sent, "response")) as [IncomingMessage];
  const chunks = (await response.toArray()) as Buffer[];
  t.is(response.headers["content-encoding"], undefined);
  t.is(fromJsonString(AppSchema, Buffer.concat(chunks).toString()).name, name);
});

for (const place of ["TCP", "the socket"]) {
  const isPacked = place === "TCP";
  const what = isPacked ? "compressed if the client accepts it" : "not packed: it stays on this machine";
  test(`gRPC over ${place}: a compressed request is read, and its response is ${what}`, async (t) => {
    await using gateway = await openGateway({ handlers: starting });
    const session = isPacked
      ? connectHttp2(gateway.url)
      : connectHttp2("http://localhost", { createConnection: () => connectSocket(gateway.socketPath) });
    const stream = session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      authorization: `Bearer ${gateway.token}`,
      "grpc-encoding": "gzip",
      "grpc-accept-encoding": "gzip",
    });
    const packed = gzipSync(toBinary(StartAppRequestSchema, request));
    const envelope = Buffer.alloc(5);
    envelope.writeUInt8(1, 0);
    envelope.writeUInt32BE(packed.length, 1);
    stream.end(Buffer.concat([envelope, packed]));
    let encoding: unknown;
    stream.on("response", (headers) => (encoding = headers["grpc-encoding"]));
    const chunks: Buffer[] = [];
    for await (const chunk of stream as AsyncIterable<Buffer>) chunks.push(chunk);
    session.close();
    const body = Buffer.concat(chunks);
    t.is(encoding, isPacked ? "gzip" : undefined);
    t.is(body.readUInt8(0), isPacked ? 1 : 0);
    const answer = body.subarray(5);
    const app = fromBinary(AppSchema, isPacked ? gunzipSync(answer) : answer);
    t.deepEqual([app.id, app.name], ["hello", name]);
  });
}

// Bodies of a normal size with a very large number of elements, in every encoding.

const user = 4001;

const full: JsonValue = { spec: "x", settings: { a: Array<JsonValue>(100_000).fill([]) } };
/** A thousand settings of each kind, and text that looks like more. */
const honest: JsonValue = {
  spec: "x",
  settings: {
    a: Array.from({ length: 1_000 }, (_, index) => ({
      id: index,
      on: true,
      tags: ["a", "b"],
      text: "[{}],",
    })),
    text: "[],".repeat(300_000),
  },
};
const jobs: JsonValue = {
  schedules: Array.from({ length: 10_000 }, (_, index) => ({
    id: `job-${index}`,
    trigger: `${index % 60} ${index % 24} * * *`,
    action: { type: "shell", command: "report" },
  })),
};

/** Created once, because each takes a while. */
const messages = {
  honest: fromJson(InstallAppRequestSchema, honest),
  full: fromJson(InstallAppRequestSchema, full),
  jobs: fromJson(ReplaceManagedSchedulesRequestSchema, { ...jobs, managed_by: "platform" }),
};

/** The request gateway of peers with this uid, and the number of jobs or settings in each accepted message. */
async function openGatewayOf(uid: number): Promise<TestGateway & { readonly seen: number[] }> {
  const seen: number[] = [];
  const gateway = await openGateway({
    loadPeerUid: () => () => uid,
    handlers: {
      app: {
        installApp(request) {
          const list = request.settings?.["a"];
          seen.push(Array.isArray(list) ? list.length : 0);
          return {};
        },
      },
      schedule: {
        replaceManagedSchedules(request) {
          seen.push(request.schedules.length);
          return {};
        },
      },
    },
  });
  return Object.assign(gateway, { seen });
}

const packings = {
  "": undefined,
  ", packed with gzip": compressionGzip,
  ", packed with brotli": compressionBrotli,
};

const transports = Object.entries(packings).flatMap(([packed, sendCompression]) =>
  [true, false].flatMap((useBinaryFormat) => {
    const what = `${useBinaryFormat ? "binary" : "JSON"}${packed}`;
    const common = {
      baseUrl: "http://localhost",
      useBinaryFormat,
      ...(sendCompression && { sendCompression, compressMinBytes: 0 }),
    };
    const http1 = ({ socketPath }: TestGateway) => ({
      ...common,
      httpVersion: "1.1" as const,
      nodeOptions: { socketPath },
    });
    const http2 = ({ socketPath }: TestGateway) => ({
      ...common,
      idleConnectionTimeoutMs: 100,
      nodeOptions: { createConnection: () => connectSocket(socketPath) },
    });
    return [
      [`Connect, ${what}`, (gateway: TestGateway): Transport => createConnectTransport(http1(gateway))],
      [`gRPC, ${what}`, (gateway: TestGateway): Transport => createGrpcTransport(http2(gateway))],
      [`gRPC-Web, ${what}`, (gateway: TestGateway): Transport => createGrpcWebTransport(http1(gateway))],
    ] as const;
  }),
);

for (const [form, open] of transports) {
  test(`${form}: a thousand settings are accepted, 100,000 empty lists are not`, async (t) => {
    await using gateway = await openGatewayOf(user);
    const { installApp } = createClient(AppService, open(gateway));
    await installApp(messages.honest);
    t.deepEqual(gateway.seen, [1_000]);

    const lists = installApp(messages.full);
    const error = svcErrorOf(await t.throwsAsync(lists, { instanceOf: ConnectError }));
    t.deepEqual([error.code, error.reason], ["resource_exhausted", "body_too_large"]);
    t.regex(error.message, /65536/);
    t.deepEqual(gateway.seen, [1_000]);
  });

  test(`${form}: root pushes 10,000 jobs at once`, async (t) => {
    await using gateway = await openGatewayOf(0);
    const { replaceManagedSchedules } = createClient(ScheduleService, open(gateway));
    await replaceManagedSchedules(messages.jobs);
    t.deepEqual(gateway.seen, [10_000]);
  });
}

const send = (gateway: TestGateway, method: string, path: string, body: JsonValue): ReturnType<typeof rest> =>
  rest(gateway, path, { method, body: JSON.stringify(body), listener: "unix" });

test("REST: a thousand settings are accepted, 100,000 empty lists are not", async (t) => {
  await using gateway = await openGatewayOf(user);
  t.is((await send(gateway, "POST", "/v1/apps", honest)).status, 200);
  const answer = await send(gateway, "POST", "/v1/apps", full);
  t.is(answer.status, 413);
  t.regex(answer.text, /"body_too_large"/);
  t.deepEqual(gateway.seen, [1_000]);
});

test("REST: root pushes 10,000 jobs at once", async (t) => {
  await using gateway = await openGatewayOf(0);
  t.is((await send(gateway, "PUT", "/v1/schedules/managed/platform", jobs)).status, 200);
  t.deepEqual(gateway.seen, [10_000]);
});

test("a query with too many elements is rejected", async (t) => {
  await using gateway = await openGatewayOf(user);
  const ask = async (fields: number): Promise<IncomingMessage> => {
    // Unknown fields.
    const message = gzipSync(Buffer.from("f80100".repeat(fields), "hex"), { level: 9 }).toString("base64url");
    const query = `connect=v1&encoding=proto&compression=gzip&base64=1&message=${message}`;
    const path = `/svc.v1.DaemonService/GetStatus?${query}`;
    return new Promise((resolve, reject) => {
      requestHttp({ socketPath: gateway.socketPath, path }, resolve).on("error", reject).end();
    });
  };
  const small = await ask(1_000);
  t.is(small.statusCode, 200, await text(small));
  const large = await ask(300_000);
  t.is(large.statusCode, 429);
  t.regex(await text(large), /body_too_large|must not hold more/);
});
