/** Failures of a call: bytes that are not a message, and exceptions of its handler. */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { connect as connectHttp2, type IncomingHttpHeaders } from "node:http2";
import type { Writable } from "node:stream";
import { buffer } from "node:stream/consumers";
import type { DescMethod } from "@bufbuild/protobuf";
import { ConnectError, Code } from "@connectrpc/connect";
import { codeToString, endStreamFromJson, errorFromJsonBytes } from "@connectrpc/connect/protocol-connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import test from "ava";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import { methodPolicies } from "../../../gen/svc/v1/methods.ts";
import { services } from "../../../gen/svc/v1/services.ts";
import type { BoundService } from "../../../src/server/rpc/bound-service.ts";
import { bindService } from "../../support/bind-service.ts";
import { eventually } from "../../support/eventually.ts";
import { isCallable, rawCall, rawProtocols } from "../../support/raw-call.ts";
import { sampleMessage, type SampleValues } from "../../support/sample-message.ts";
import { rest } from "./support/clients.ts";
import { openGateway, type TestGateway } from "./support/gateway.ts";

// Bytes that are not a message are the caller's mistake over every protocol, and such a call is audited like any other.

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Used as the last byte. */
const never = Infinity;

async function post(
  gateway: TestGateway,
  http: "1.1" | "2",
  path: string,
  sent: Record<string, string>,
  body: Buffer,
  lastByteAfterMs = 0,
): Promise<Answer> {
  const send = (stream: Writable): void => {
    if (lastByteAfterMs === 0) {
      stream.end(body);
      return;
    }
    stream.write(body.subarray(0, -1));
    if (lastByteAfterMs !== never) setTimeout(() => stream.end(body.subarray(-1)), lastByteAfterMs);
  };
  const headers = { authorization: `Bearer ${gateway.token}`, ...sent };
  if (http === "1.1") {
    return new Promise((resolve, reject) => {
      const options = { method: "POST", headers, agent: false };
      const sending = httpRequest(`${gateway.url}${path}`, options, (response) => {
        void buffer(response).then((bytes) =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: bytes }),
        );
      });
      send(sending.on("error", reject));
    });
  }
  const session = connectHttp2(gateway.url);
  const stream = session.request({ ":method": "POST", ":path": path, te: "trailers", ...headers });
  let received: IncomingHttpHeaders = {};
  const take = (more: IncomingHttpHeaders): void => void (received = { ...received, ...more });
  send(stream.on("response", take).on("trailers", take));
  const bytes = await buffer(stream);
  session.close();
  return { status: Number(received[":status"]), headers: received, body: bytes };
}

function envelope(data: Buffer, flags = 0): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

/** The trailers of a gRPC or gRPC-Web response: separate, in the headers, or in the last envelope. */
function grpcError({ headers, body }: Answer): ConnectError | undefined {
  const told = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(":") && value !== undefined) told.set(name, String(value));
  }
  if (!told.has("grpc-status")) {
    for (const line of body.subarray(5).toString().split("\r\n")) {
      const colon = line.indexOf(":");
      if (colon > 0) told.set(line.slice(0, colon), line.slice(colon + 1).trim());
    }
  }
  return findTrailerError(told);
}

function codeOf(error: ConnectError | undefined): string {
  return error === undefined ? "ok" : codeToString(error.code);
}

const startApp = "/svc.v1.AppService/StartApp";
const installStream = "/svc.v1.AppService/InstallAppStream";
const upload = "/svc.v1.FileService/WriteFile";

interface Way {
  readonly http: "1.1" | "2";
  readonly type: (codec: string) => string;
  readonly packing: string;
  readonly wrap: (data: Buffer, flags: number) => Buffer;
  readonly errorOf: (answer: Answer) => ConnectError | undefined;
  readonly paths: readonly string[];
}

const isEnveloped = { wrap: envelope, paths: [startApp, installStream, upload] } as const;
const connectStream = {
  type: (codec: string) => `application/connect+${codec}`,
  packing: "connect-content-encoding",
  wrap: envelope,
  errorOf: ({ body }: Answer) => endStreamFromJson(body.subarray(5)).error,
  paths: [installStream],
} as const;

const ways: Readonly<Record<string, Way>> = {
  ...Object.fromEntries(
    (["1.1", "2"] as const).flatMap((http) => [
      [
        `Connect over HTTP/${http}`,
        {
          http,
          type: (codec: string) => `application/${codec}`,
          packing: "content-encoding",
          wrap: (data: Buffer) => data,
          errorOf: ({ status, body }: Answer) =>
            [400, 504].includes(status)
              ? errorFromJsonBytes(body, undefined, new ConnectError("no error", Code.Unknown))
              : new ConnectError(`status ${status}: ${body.toString()}`, Code.Unknown),
          paths: [startApp],
        },
      ],
      [`Connect streams over HTTP/${http}`, { ...connectStream, http }],
      [
        `gRPC-Web over HTTP/${http}`,
        {
          ...isEnveloped,
          http,
          type: (codec: string) => `application/grpc-web+${codec}`,
          packing: "grpc-encoding",
          errorOf: grpcError,
        },
      ],
    ]),
  ),
  // Connect's own clients support client streaming only over HTTP/2.
  "Connect uploads over HTTP/2": { ...connectStream, http: "2", paths: [upload] },
  gRPC: {
    ...isEnveloped,
    http: "2",
    type: (codec) => `application/grpc+${codec}`,
    packing: "grpc-encoding",
    errorOf: grpcError,
  },
};

const bodies: Readonly<Record<string, { codec: string; data: Buffer; isPacked?: boolean }>> = {
  "protobuf that ends early": { codec: "proto", data: Buffer.from([0x0a, 0x7f, 0x41]) },
  "an invalid tag": { codec: "proto", data: Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) },
  "JSON that ends early": { codec: "json", data: Buffer.from('{"id":') },
  "JSON of another type": { codec: "json", data: Buffer.from('{"id":{},"path":{},"spec":{},"target":7}') },
  "bytes that are not packed as they say": { codec: "proto", data: Buffer.from("plain"), isPacked: true },
};

for (const [wayName, { http, type, packing, wrap, errorOf, paths }] of Object.entries(ways)) {
  for (const [bodyName, { codec, data, isPacked = false }] of Object.entries(bodies)) {
    test(`${wayName}: ${bodyName} is an invalid request`, async (t) => {
      await using gateway = await openGateway();
      for (const path of paths) {
        const headers = { "content-type": type(codec), ...(isPacked && { [packing]: "gzip" }) };
        const error = errorOf(await post(gateway, http, path, headers, wrap(data, isPacked ? 1 : 0)));
        t.is(codeOf(error), "invalid_argument", error?.message);
        const [detail] = error?.findDetails(ErrorDetailSchema) ?? [];
        t.is(detail?.reason, "invalid_request", path);
        t.is(detail?.payload.case, "invalidRequest", path);
        await eventually(() => {
          const method = path.slice(1);
          const counted = gateway.counts.splice(0).join();
          if (counted !== `${method} invalid_argument`) throw new Error(`counted ${counted}`);
          const [record, ...more] = gateway.audits.splice(0);
          if (record?.method !== method || more.length > 0) throw new Error("not exactly one record");
        });
      }
      t.deepEqual(
        gateway.lines.filter(({ level }) => level === "error"),
        [],
      );
    });
  }
}

for (const [wayName, { http, type, packing, wrap, errorOf, paths }] of Object.entries(ways)) {
  test(`${wayName}: a message that arrives after the deadline is too late, valid or not`, async (t) => {
    await using gateway = await openGateway();
    const deadline: Record<string, string> = wayName.startsWith("gRPC")
      ? { "grpc-timeout": "30m" }
      : { "connect-timeout-ms": "30" };
    const calls = Object.values(bodies).flatMap((body) => paths.map((path) => ({ ...body, path })));
    const codes = calls.map(async ({ codec, data, isPacked = false, path }) => {
      const headers = { "content-type": type(codec), ...deadline, ...(isPacked && { [packing]: "gzip" }) };
      const answer = await post(gateway, http, path, headers, wrap(data, isPacked ? 1 : 0), 4_000);
      return `${path.slice(1)} ${codeOf(errorOf(answer))}`;
    });
    const expected = calls.map(({ path }) => `${path.slice(1)} deadline_exceeded`);
    t.deepEqual(await Promise.all(codes), expected);
    await eventually(() => assert.deepEqual(gateway.counts.toSorted(), expected.toSorted()));
  });
}

for (const [wayName, { http, type, packing, wrap, errorOf, paths }] of Object.entries(ways)) {
  test(`${wayName}: a body that never ends fails at its deadline, not at the listener's`, async (t) => {
    t.timeout(10_000);
    await using gateway = await openGateway();
    const deadline: Record<string, string> = wayName.startsWith("gRPC")
      ? { "grpc-timeout": "30m" }
      : { "connect-timeout-ms": "30" };
    const large: (typeof bodies)[string] = { codec: "proto", data: Buffer.alloc(100_000) };
    const calls = [...Object.values(bodies), large].flatMap((body) =>
      paths.map((path) => ({ ...body, path })),
    );
    const codes = calls.map(async ({ codec, data, isPacked = false, path }) => {
      const headers = { "content-type": type(codec), ...deadline, ...(isPacked && { [packing]: "gzip" }) };
      const answer = await post(gateway, http, path, headers, wrap(data, isPacked ? 1 : 0), never);
      return `${path.slice(1)} ${codeOf(errorOf(answer))}`;
    });
    const expected = calls.map(({ path }) => `${path.slice(1)} deadline_exceeded`);
    t.deepEqual(await Promise.all(codes), expected);
    await eventually(() => assert.deepEqual(gateway.counts.toSorted(), expected.toSorted()));
    t.is(gateway.audits.length, expected.length);
  });
}

test("a message in the query that is not base64 is rejected as the caller's mistake", async (t) => {
  await using gateway = await openGateway();
  const url = `${gateway.url}/svc.v1.DaemonService/GetStatus?connect=v1&encoding=proto&base64=1&message=%25%25%21`;
  const answer = await fetch(url, { headers: { authorization: `Bearer ${gateway.token}` } });
  t.is(answer.status, 400);
  t.like(await answer.json(), {
    code: "invalid_argument",
    message: "message is not valid base64",
  });
  t.deepEqual(gateway.counts, ["svc.v1.DaemonService/GetStatus invalid_argument"]);
});

test("a deadline of zero has passed before a byte is read, valid or not", async (t) => {
  await using gateway = await openGateway();
  for (const http of ["1.1", "2"] as const) {
    const headers = { "content-type": "application/proto", "connect-timeout-ms": "0" };
    const answer = await post(gateway, http, startApp, headers, Buffer.from([0xff, 0xff]));
    t.is(answer.status, 504);
    t.like(JSON.parse(answer.body.toString()), { code: "deadline_exceeded" });
    t.deepEqual(gateway.counts.splice(0), [`${startApp.slice(1)} deadline_exceeded`]);
  }
});

// An exception of a handler ends only its own call, over every protocol.

const secret = "/var/lib/svc/svc.db";
const failures: Readonly<Record<string, (method: DescMethod) => unknown>> = {
  throws: () => {
    throw new Error(secret);
  },
  "throws a value that is not an error": () => {
    // eslint-disable-next-line @typescript-eslint/only-throw-error -- whatever a library may throw
    throw null;
  },
  "fails later": ({ methodKind }) =>
    methodKind === "server_streaming" || methodKind === "bidi_streaming"
      ? failingStream()
      : Promise.resolve().then(fail),
};

/** Signing in to the page has its own rules before any handler. */
function takesTokens({ parent, name }: DescMethod): boolean {
  const policies: Readonly<Record<string, { readonly access: string } | undefined>> = methodPolicies;
  return !["PEER", "CODE"].includes(policies[`${parent.typeName}/${name}`]?.access ?? "");
}

/** Session IDs have their own format. */
function valuesOf({ name }: DescMethod): SampleValues {
  return name === "EndSession" ? { id: "0123456789ab" } : {};
}

function fail(): never {
  throw new TypeError(secret);
}

// eslint-disable-next-line require-yield -- it fails before
async function* failingStream(): AsyncGenerator<never> {
  await Promise.resolve();
  fail();
}

function throwing(way: (method: DescMethod) => unknown): BoundService[] {
  return services.map((service) => {
    const handlers = service.methods.map((method) => [method.localName, () => way(method)]);
    return bindService(service, Object.fromEntries(handlers) as never);
  });
}

for (const [name, way] of Object.entries(failures)) {
  for (const protocol of rawProtocols) {
    test(`${protocol}: a handler that ${name} is one internal error, in every method`, async (t) => {
      await using gateway = await openGateway({ services: throwing(way) });
      const target = { port: gateway.port, headers: { authorization: `Bearer ${gateway.token}` } };
      let calls = 0;
      for (const method of services.flatMap((service) => service.methods)) {
        if (!isCallable(method, protocol) || !takesTokens(method)) continue;
        const outcome = await rawCall(
          target,
          method,
          protocol,
          sampleMessage(method.input, valuesOf(method)),
        );
        const expected = {
          code: "internal",
          reason: "internal",
          ...(protocol === "rest" && { status: 500 }),
        };
        t.deepEqual(outcome, expected, method.name);
        calls++;
      }
      t.true(calls > 50, String(calls));
      const errors = gateway.lines.filter(({ level }) => level === "error");
      t.is(errors.length, calls, "each is logged once");
      t.deepEqual(
        gateway.counts.filter((count) => !count.endsWith(" internal")),
        [],
      );
      t.is((await rest(gateway, "/healthz", { token: "" })).status, 200);
    });
  }
}
