/** One call as bytes over REST, Connect or gRPC, so that a test may also send invalid ones. */
import { request as httpRequest, type Agent, type IncomingMessage, type RequestOptions } from "node:http";
import { connect as connectHttp2, type ClientHttp2Session, type IncomingHttpHeaders } from "node:http2";
import { connect as connectSocket } from "node:net";
import { buffer } from "node:stream/consumers";
import { toBinary, toJson, type DescMethod, type JsonObject, type Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString, endStreamFromJson, errorFromJsonBytes } from "@connectrpc/connect/protocol-connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import { routes } from "../../gen/svc/v1/routes.ts";
import { bindRequest } from "../../src/cli/client/rest-client.ts";

export const rawProtocols = ["rest", "connect", "grpc"] as const;
export type RawProtocol = (typeof rawProtocols)[number];

/** The target of calls, and their identity. */
export interface Target {
  /** A unix socket, or a port of 127.0.0.1. */
  readonly socketPath?: string;
  readonly port?: number;
  /** The client address of TCP calls. */
  readonly localAddress?: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly agent?: Agent;
}

/** The result of a call: `ok` or the code, as the protocol encodes it. */
export interface Outcome {
  readonly code: string;
  readonly reason: string;
  /** REST's. */
  readonly status?: number;
}

/** Bytes that are not a message. */
const malformed = Buffer.from("{");

/** Whether the protocol has the method: svc's streams have no REST route, bidirectional streams need HTTP/2. */
export function isCallable(method: DescMethod, protocol: RawProtocol): boolean {
  if (method.methodKind === "bidi_streaming") return protocol === "grpc";
  return protocol !== "rest" || routes.some((route) => route.method === method);
}

/** @param message the message to send; `undefined` sends a message or a query that cannot be parsed */
export function rawCall(
  target: Target,
  method: DescMethod,
  protocol: RawProtocol,
  message: Message | undefined,
): Promise<Outcome> {
  switch (protocol) {
    case "rest":
      return callRest(target, method, message);
    case "connect":
      return callConnect(target, method, message);
    case "grpc":
      return callGrpc(target, method, message);
  }
}

async function callRest(target: Target, method: DescMethod, message: Message | undefined): Promise<Outcome> {
  const route = routes.find((candidate) => candidate.method === method);
  if (route === undefined) throw new Error(`${method.name} has no REST route`);
  const { httpMethod, template, body: bodyField } = route;
  const names = template.variables.flatMap(({ fieldPath }) => fieldPath);
  const probe = { ...Object.fromEntries(names.map((name) => [name, "1"])), no_such_field: 1 };
  const json = message === undefined ? probe : (toJson(method.input, message) as JsonObject);
  const isRaw = bodyField !== "" && bodyField !== "*";
  // An upload's other fields are in the query, like those of a GET.
  const call = {
    service: "",
    method: "",
    httpMethod,
    path: template.source,
    body: isRaw ? "" : bodyField,
  };
  const { path, body } = bindRequest(call as never, json);
  const answer = await send(
    target,
    httpMethod,
    path,
    isRaw ? "application/octet-stream" : "application/json",
    body,
  );
  const status = answer.statusCode ?? 0;
  const text = (await buffer(answer)).toString("utf8");
  if (status === 200) return { code: "ok", reason: "", status };
  const { code, reason } = JSON.parse(text) as { code: string; reason: string };
  return { code, reason, status };
}

async function callConnect(
  target: Target,
  method: DescMethod,
  message: Message | undefined,
): Promise<Outcome> {
  const payload = message === undefined ? malformed : Buffer.from(toBinary(method.input, message));
  const isUnary = method.methodKind === "unary";
  const codec = message === undefined ? "json" : "proto";
  const answer = await send(
    target,
    "POST",
    pathOf(method),
    `application/${isUnary ? "" : "connect+"}${codec}`,
    isUnary ? payload : envelope(payload),
  );
  const bytes = await buffer(answer);
  if (isUnary) {
    if (answer.statusCode === 200) return { code: "ok", reason: "" };
    return outcomeOf(errorFromJsonBytes(bytes, undefined, new ConnectError("no error body", Code.Unknown)));
  }
  return outcomeOf(endStreamFromJson(lastEnvelope(bytes)).error);
}

async function callGrpc(target: Target, method: DescMethod, message: Message | undefined): Promise<Outcome> {
  const payload = message === undefined ? malformed : Buffer.from(toBinary(method.input, message));
  const session = openSession(target);
  try {
    const stream = session.request({
      ":method": "POST",
      ":path": pathOf(method),
      "content-type": `application/grpc+${message === undefined ? "json" : "proto"}`,
      te: "trailers",
      ...target.headers,
    });
    const answered: IncomingHttpHeaders[] = [];
    stream.on("response", (headers) => answered.push(headers));
    stream.on("trailers", (headers: IncomingHttpHeaders) => answered.push(headers));
    stream.end(envelope(payload));
    await buffer(stream);
    const told = answered.findLast((headers) => headers["grpc-status"] !== undefined);
    if (told === undefined) throw new Error(`the response of ${method.name} has no gRPC status`);
    const headers = new Headers();
    for (const [name, value] of Object.entries(told)) {
      if (!name.startsWith(":") && value !== undefined) headers.set(name, String(value));
    }
    return outcomeOf(findTrailerError(headers));
  } finally {
    session.close();
  }
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function outcomeOf(error: ConnectError | undefined): Outcome {
  if (error === undefined) return { code: "ok", reason: "" };
  const [detail] = error.findDetails(ErrorDetailSchema);
  return { code: codeToString(error.code), reason: detail?.reason ?? "" };
}

function send(
  { headers, agent, socketPath, port, localAddress }: Target,
  method: string,
  path: string,
  contentType: string,
  body: Buffer | string | undefined,
): Promise<IncomingMessage> {
  const options: RequestOptions = {
    ...(socketPath === undefined ? { host: "127.0.0.1", port } : { socketPath }),
    ...(localAddress !== undefined && { localAddress }),
    method,
    path,
    headers: { ...(body !== undefined && { "content-type": contentType }), ...headers },
    agent: agent ?? false,
  };
  return new Promise((resolve, reject) => {
    const request = httpRequest(options, resolve);
    request.on("error", reject);
    request.end(body);
  });
}

function openSession({ socketPath, port, localAddress }: Target): ClientHttp2Session {
  const socket =
    socketPath === undefined
      ? connectSocket({
          host: "127.0.0.1",
          port: port ?? 0,
          ...(localAddress !== undefined && { localAddress }),
        })
      : connectSocket(socketPath);
  const session = connectHttp2("http://127.0.0.1", { createConnection: () => socket });
  // Errors appear in the stream.
  session.on("error", () => undefined);
  return session;
}

function envelope(payload: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

function lastEnvelope(bytes: Buffer): Buffer {
  let last: Buffer = Buffer.alloc(0);
  for (let at = 0; at < bytes.length; at += 5 + last.length) {
    last = bytes.subarray(at + 5, at + 5 + bytes.readUInt32BE(at + 1));
  }
  return last;
}
