/** Random requests: valid ones, mutated ones, and hostile ones. */
import { toBinary, toJsonString, type DescMethod, type Message } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { gzipSync } from "node:zlib";
import { routes } from "../../gen/svc/v1/routes.ts";
import type { Route } from "../../src/server/rest/router.ts";
import { randomMessage, randomText } from "./messages.ts";
import type { Random } from "./random.ts";

export type Kind = "valid" | "mutated" | "hostile";
export type Protocol = "REST" | "Connect" | "gRPC";

export interface FuzzRequest {
  readonly kind: Kind;
  readonly protocol: Protocol;
  readonly http: "1.1" | "2";
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Raw bytes for a separate connection, instead of all of the above except `kind`. */
  readonly raw?: Buffer;
}

const allMethods: readonly DescMethod[] = [...new Set(routes.map(({ method }) => method))];

/** Methods that may be called with a valid token: they read, or find no app to change. */
const harmless = /^(Start|Stop|Restart|Remove)App$|^UpdateAppSettings$|^IssueConsoleToken$/;

function isHarmless(method: DescMethod): boolean {
  return method.idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS || harmless.test(method.name);
}

export function randomRequest(random: Random, token: string): FuzzRequest {
  const kind = random.pick<Kind>(["valid", "mutated", "hostile"]);
  if (kind === "hostile" && random.once(3)) return rawRequest(random, token);
  const protocol = random.pick<Protocol>(["REST", "Connect", "gRPC"]);
  const request = { ...baseRequest(random, protocol, token), kind };
  return kind === "valid" ? request : changed(random, request, kind === "mutated" ? 1 : 4);
}

function baseRequest(random: Random, protocol: Protocol, token: string): Omit<FuzzRequest, "kind"> {
  if (protocol === "REST") return restRequest(random, random.pick(routes), token);
  const method = random.pick(allMethods);
  const message = randomMessage(random, method.input);
  const path = `/${method.parent.typeName}/${method.name}`;
  const headers = { authorization: bearer(random, method, token) };
  if (protocol === "gRPC") {
    const type = random.pick(["application/grpc", "application/grpc+proto", "application/grpc-web+proto"]);
    const isWeb = type.includes("web");
    return {
      protocol,
      http: isWeb && random.once(2) ? "1.1" : "2",
      method: "POST",
      path,
      headers: {
        ...headers,
        "content-type": type,
        ...(isWeb ? {} : { te: "trailers" }),
        ...(random.once(4) && { "grpc-timeout": "2S" }),
      },
      body: envelopes(method, message),
    };
  }
  const isUnary = method.methodKind === "unary";
  const isJson = random.once(2);
  const codec = isJson ? "json" : "proto";
  return {
    protocol,
    http: random.once(2) ? "2" : "1.1",
    method: "POST",
    path,
    headers: {
      ...headers,
      "content-type": isUnary ? `application/${codec}` : `application/connect+${codec}`,
      "connect-protocol-version": "1",
      ...(random.once(4) && { "connect-timeout-ms": "2000" }),
    },
    body: isUnary ? encode(method, message, isJson) : envelopes(method, message, isJson),
  };
}

function restRequest(random: Random, route: Route, token: string): Omit<FuzzRequest, "kind"> {
  const { segments, verb } = route.template;
  const filled = segments.map((segment) =>
    segment.startsWith("*") ? encodeURIComponent(randomText(random)).slice(0, 200) || "x" : segment,
  );
  const message = randomMessage(random, route.method.input);
  const query = random.once(3) ? `?${encodeURIComponent(randomText(random))}=${random.integer(100)}` : "";
  return {
    protocol: "REST",
    http: random.once(2) ? "2" : "1.1",
    method: route.httpMethod,
    path: `/${filled.join("/")}${verb === "" ? "" : `:${verb}`}${query}`,
    headers: {
      authorization: bearer(random, route.method, token),
      ...(route.body === "" ? {} : { "content-type": "application/json" }),
    },
    body: route.body === "" ? Buffer.alloc(0) : encode(route.method, message, true),
  };
}

/** A valid token is used only for harmless methods. */
function bearer(random: Random, method: DescMethod, token: string): string {
  return isHarmless(method) && !random.once(10) ? `Bearer ${token}` : "Bearer svcp_wrong";
}

function encode({ input }: DescMethod, message: Message, isJson: boolean): Buffer {
  if (!isJson) return Buffer.from(toBinary(input, message));
  try {
    return Buffer.from(toJsonString(input, message));
  } catch {
    // Not every message has a JSON form: a Timestamp may be out of range.
    return Buffer.from("{}");
  }
}

function envelopes(method: DescMethod, message: Message, isJson = false): Buffer {
  const count = method.methodKind.startsWith("client") || method.methodKind.startsWith("bidi") ? 3 : 1;
  const data = encode(method, message, isJson);
  return Buffer.concat(
    Array.from({ length: count }, () => {
      const head = Buffer.alloc(5);
      head.writeUInt32BE(data.length, 1);
      return Buffer.concat([head, data]);
    }),
  );
}

const packed = [0, 1, 4, 20].map((mib) => gzipSync(Buffer.alloc(mib * 1024 * 1024)));
const deep = Buffer.from('{"a":['.repeat(5000));

type Change = (request: FuzzRequest, random: Random) => Partial<FuzzRequest>;

const oddHeaders: readonly (readonly [string, string])[] = [
  ["content-type", "text/plain"],
  ["content-type", "application/json; charset=\u00ff"],
  ["content-type", "application/grpc+__proto__"],
  ["content-encoding", "gzip"],
  ["content-encoding", "br, gzip, x"],
  ["grpc-encoding", "gzip"],
  ["grpc-encoding", "__proto__"],
  ["connect-content-encoding", "gzip"],
  ["grpc-timeout", "99999999999999H"],
  ["grpc-timeout", "-1n"],
  ["connect-timeout-ms", "0"],
  ["connect-timeout-ms", "1e99"],
  ["connect-protocol-version", "2"],
  ["__proto__", "x"],
  ["constructor", "x"],
  ["origin", "http://evil.example"],
  ["x-svc-sudo-uid", "0"],
  ["accept-encoding", "gzip;q=nan"],
  ["x-long", "y".repeat(8000)],
  ["expect", "100-continue"],
  ["cookie", "a=b; ".repeat(50)],
  ["range", "bytes=0-18446744073709551615"],
];

const changes: readonly Change[] = [
  ({ body }, random) => ({ body: flipped(body, random) }),
  ({ body }, random) => ({ body: body.subarray(0, random.integer(body.length + 1)) }),
  ({ body }, random) => ({ body: Buffer.concat([body, random.bytes(64)]) }),
  (_request, random) => ({ body: random.bytes(2000) }),
  ({ body }) => ({ body: gzipSync(body) }),
  (_request, random) => ({ body: random.pick(packed) }),
  () => ({ body: deep }),
  () => ({ body: Buffer.from('{"__proto__":{"root":true},"constructor":1,"id":{"id":"x"}}') }),
  () => ({ body: Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 1]) }),
  ({ headers }, random) => {
    const [name, value] = random.pick(oddHeaders);
    return { headers: { ...headers, [name]: value } };
  },
  ({ headers }, random) => {
    const kept = Object.entries(headers).filter(() => !random.once(3));
    return { headers: Object.fromEntries(kept) };
  },
  (_request, random) => ({
    method: random.pick(["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "POST"]),
  }),
  ({ path }, random) => ({
    path: `${path}${random.pick(["/", "//", "?", "?a=b&a=c", ":x", "/..", "%zz", ";a"])}`,
  }),
  ({ path }, random) => {
    const at = random.integer(path.length);
    return {
      path: `/${path.slice(1, at)}${random.pick(["%2f", "%00", "*", "~", "%ff", "."])}${path.slice(at)}`,
    };
  },
];

function changed(random: Random, request: FuzzRequest, times: number): FuzzRequest {
  let result = request;
  for (let n = 0; n < times; n++) result = { ...result, ...random.pick(changes)(result, random) };
  return result;
}

function flipped(body: Buffer, random: Random): Buffer {
  const copy = Buffer.from(body);
  for (let n = 0; n < 3 && copy.length > 0; n++) copy[random.integer(copy.length)] = random.integer(256);
  return copy;
}

const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

function rawRequest(random: Random, token: string): FuzzRequest {
  const whole = Buffer.from(
    `POST /v1/apps/nope/start HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n` +
      "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
  );
  const raw = random.pick<() => Buffer>([
    () => random.bytes(300),
    () => flipped(whole, random),
    () => whole.subarray(0, random.integer(whole.length)),
    () => Buffer.concat([preface, random.bytes(300)]),
    () => Buffer.concat([preface, frame(4, 0, 0, Buffer.alloc(0)), randomFrame(random), randomFrame(random)]),
    () => flipped(Buffer.concat([preface, frame(4, 0, 0, Buffer.alloc(0))]), random),
    () => Buffer.from(`GET /v1/status HTTP/1.1\r\nHost: localhost\r\n${"X: y\r\n".repeat(150)}\r\n`),
    () => Buffer.concat([whole, random.bytes(50)]),
  ])();
  return {
    kind: "hostile",
    protocol: "REST",
    http: "1.1",
    method: "",
    path: "",
    headers: {},
    body: raw,
    raw,
  };
}

function randomFrame(random: Random): Buffer {
  return frame(random.integer(12), random.integer(256), random.integer(5), random.bytes(64));
}

/** One HTTP/2 frame (RFC 9113, 4.1). */
function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}
