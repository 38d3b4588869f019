/** Bodies of a normal size with a very large number of elements, in every encoding. */
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { createClient, type Transport, ConnectError } from "@connectrpc/connect";
import {
  compressionBrotli,
  compressionGzip,
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import test from "ava";
import { AppService, InstallAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { ReplaceManagedSchedulesRequestSchema, ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";
import { svcErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { rest } from "./support/clients.ts";
import { openDoor, type Door } from "./support/door.ts";

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
async function openDoorOf(uid: number): Promise<Door & { readonly seen: number[] }> {
  const seen: number[] = [];
  const door = await openDoor({
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
  return Object.assign(door, { seen });
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
    const http1 = ({ socketPath }: Door) => ({
      ...common,
      httpVersion: "1.1" as const,
      nodeOptions: { socketPath },
    });
    const http2 = ({ socketPath }: Door) => ({
      ...common,
      idleConnectionTimeoutMs: 100,
      nodeOptions: { createConnection: () => connect(socketPath) },
    });
    return [
      [`Connect, ${what}`, (door: Door): Transport => createConnectTransport(http1(door))],
      [`gRPC, ${what}`, (door: Door): Transport => createGrpcTransport(http2(door))],
      [`gRPC-Web, ${what}`, (door: Door): Transport => createGrpcWebTransport(http1(door))],
    ] as const;
  }),
);

for (const [form, open] of transports) {
  test(`${form}: a thousand settings are accepted, 100,000 empty lists are not`, async (t) => {
    await using door = await openDoorOf(user);
    const { installApp } = createClient(AppService, open(door));
    await installApp(messages.honest);
    t.deepEqual(door.seen, [1_000]);

    const lists = installApp(messages.full);
    const error = svcErrorOf(await t.throwsAsync(lists, { instanceOf: ConnectError }));
    t.deepEqual([error.code, error.reason], ["resource_exhausted", "body_too_large"]);
    t.regex(error.message, /65536/);
    t.deepEqual(door.seen, [1_000]);
  });

  test(`${form}: root pushes 10,000 jobs at once`, async (t) => {
    await using door = await openDoorOf(0);
    const { replaceManagedSchedules } = createClient(ScheduleService, open(door));
    await replaceManagedSchedules(messages.jobs);
    t.deepEqual(door.seen, [10_000]);
  });
}

const send = (door: Door, method: string, path: string, body: JsonValue): ReturnType<typeof rest> =>
  rest(door, path, { method, body: JSON.stringify(body), listener: "unix" });

test("REST: a thousand settings are accepted, 100,000 empty lists are not", async (t) => {
  await using door = await openDoorOf(user);
  t.is((await send(door, "POST", "/v1/apps", honest)).status, 200);
  const answer = await send(door, "POST", "/v1/apps", full);
  t.is(answer.status, 413);
  t.regex(answer.text, /"body_too_large"/);
  t.deepEqual(door.seen, [1_000]);
});

test("REST: root pushes 10,000 jobs at once", async (t) => {
  await using door = await openDoorOf(0);
  t.is((await send(door, "PUT", "/v1/schedules/managed/platform", jobs)).status, 200);
  t.deepEqual(door.seen, [10_000]);
});

test("a query with too many elements is rejected", async (t) => {
  await using door = await openDoorOf(user);
  const ask = async (fields: number): Promise<IncomingMessage> => {
    // Unknown fields.
    const message = gzipSync(Buffer.from("f80100".repeat(fields), "hex"), { level: 9 }).toString("base64url");
    const query = `connect=v1&encoding=proto&compression=gzip&base64=1&message=${message}`;
    const path = `/svc.v1.DaemonService/GetStatus?${query}`;
    return new Promise((resolve, reject) => {
      httpRequest({ socketPath: door.socketPath, path }, resolve).on("error", reject).end();
    });
  };
  const small = await ask(1_000);
  t.is(small.statusCode, 200, await text(small));
  const large = await ask(300_000);
  t.is(large.statusCode, 429);
  t.regex(await text(large), /body_too_large|must not hold more/);
});
