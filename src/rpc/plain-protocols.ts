/**
 * How gRPC and Connect put a unary call into a request and its answer, in the form that nearly all calls have: a binary
 * message that is not packed. See grpc's PROTOCOL-HTTP2.md and connectrpc.com/docs/protocol.
 */
import type { IncomingHttpHeaders } from "node:http";
import type { Writable } from "node:stream";
import type { ConnectError } from "@connectrpc/connect";
import {
  codeToHttpStatus,
  errorToJsonBytes,
  parseTimeout as parseConnectTimeout,
} from "@connectrpc/connect/protocol-connect";
import { parseTimeout as parseGrpcTimeout } from "@connectrpc/connect/protocol-grpc";
import { setGrpcStatus } from "./grpc-status.ts";
import { fitTrailers } from "./grpc-trailers.ts";
import type { HttpCall } from "./http-call.ts";

/** The response of node's `http` and `http2` servers, as much of it as a unary answer needs. */
export interface UnaryResponse extends Pick<Writable, "on" | "end"> {
  setHeader(name: string, value: string | number): unknown;
  appendHeader(name: string, value: string): unknown;
  writeHead(status: number): unknown;
  addTrailers(trailers: Record<string, string>): unknown;
}

/** What a client gives its call, in milliseconds; `error` says that it cannot be read or is too long. */
export interface Timeout {
  readonly timeoutMs?: number | undefined;
  readonly error?: ConnectError | undefined;
}

/** What is sent: a message, and whether it is packed with gzip. */
export interface Payload {
  readonly bytes: Uint8Array;
  readonly isPacked: boolean;
}

export interface PlainProtocol {
  readonly name: "grpc" | "connect";
  /** Which packings the client takes for its answer. */
  readonly acceptHeader: "grpc-accept-encoding" | "accept-encoding";
  /** Whether the headers say that the request has the plain form. */
  isPlain(headers: IncomingHttpHeaders, httpVersionMajor: number): boolean;
  timeoutOf(headers: IncomingHttpHeaders, maxTimeoutMs: number): Timeout;
  /** @param timeoutMs a whole number */
  putTimeout(headers: IncomingHttpHeaders, timeoutMs: number): void;
  /** The message in a body; undefined when it is not just one in the plain form. */
  messageIn(body: Buffer): Uint8Array | undefined;
  send(response: UnaryResponse, call: HttpCall, payload: Payload): void;
  fail(response: UnaryResponse, call: HttpCall, error: ConnectError): void;
}

/** Flags and length before a message. */
const envelopeBytes = 5;

/** The number in it has eight digits at most, whatever its unit. */
const maxGrpcTimeout = 99_999_999;

export const plainGrpc: PlainProtocol = {
  name: "grpc",
  acceptHeader: "grpc-accept-encoding",

  isPlain(headers, httpVersionMajor) {
    const type = headers["content-type"];
    return (
      httpVersionMajor === 2 &&
      (type === "application/grpc" || type === "application/grpc+proto") &&
      isUnpacked(headers["grpc-encoding"])
    );
  },

  timeoutOf: (headers, maxTimeoutMs) => parseGrpcTimeout(textOf(headers["grpc-timeout"]), maxTimeoutMs),

  putTimeout(headers, timeoutMs) {
    headers["grpc-timeout"] =
      timeoutMs <= maxGrpcTimeout ? `${timeoutMs}m` : `${Math.floor(timeoutMs / 1000)}S`;
  },

  messageIn(body) {
    const isPlain =
      body.length >= envelopeBytes && body[0] === 0 && body.readUInt32BE(1) === body.length - envelopeBytes;
    return isPlain ? body.subarray(envelopeBytes) : undefined;
  },

  send(response, call, { bytes, isPacked }) {
    const envelope = Buffer.allocUnsafe(envelopeBytes + bytes.length);
    envelope[0] = isPacked ? 1 : 0;
    envelope.writeUInt32BE(bytes.length, 1);
    envelope.set(bytes, envelopeBytes);
    if (isPacked) response.setHeader("grpc-encoding", "gzip");
    endGrpc(response, call, envelope);
  },

  fail(response, call, error) {
    setGrpcStatus(call.openResponseTrailer(), fitTrailers(error));
    endGrpc(response, call);
  },
};

function endGrpc(response: UnaryResponse, call: HttpCall, body?: Buffer): void {
  appendHeaders(response, call.responseHeader, "");
  response.setHeader("content-type", "application/grpc+proto");
  response.writeHead(200);
  const trailers: Record<string, string> = { "grpc-status": "0" };
  if (call.responseTrailer !== undefined) Object.assign(trailers, Object.fromEntries(call.responseTrailer));
  response.addTrailers(trailers);
  response.end(body);
}

export const plainConnect: PlainProtocol = {
  name: "connect",
  acceptHeader: "accept-encoding",

  isPlain: (headers) =>
    headers["content-type"] === "application/proto" && isUnpacked(headers["content-encoding"]),

  timeoutOf: (headers, maxTimeoutMs) =>
    parseConnectTimeout(textOf(headers["connect-timeout-ms"]), maxTimeoutMs),

  putTimeout(headers, timeoutMs) {
    headers["connect-timeout-ms"] = String(timeoutMs);
  },

  messageIn: (body) => body,

  send(response, call, { bytes, isPacked }) {
    if (isPacked) response.setHeader("content-encoding", "gzip");
    endConnect(response, call, 200, "application/proto", bytes);
  },

  fail(response, call, error) {
    const body = errorToJsonBytes(error, undefined);
    endConnect(response, call, codeToHttpStatus(error.code), "application/json", body);
  },
};

function endConnect(
  response: UnaryResponse,
  call: HttpCall,
  status: number,
  contentType: string,
  body: Uint8Array,
): void {
  appendHeaders(response, call.responseHeader, "");
  appendHeaders(response, call.responseTrailer, "trailer-");
  response.setHeader("content-type", contentType);
  response.setHeader("content-length", body.length);
  response.writeHead(status);
  response.end(body);
}

function appendHeaders(response: UnaryResponse, headers: Headers | undefined, prefix: string): void {
  if (headers === undefined) return;
  for (const [name, value] of headers) response.appendHeader(prefix + name, value);
}

function isUnpacked(encoding: string | string[] | undefined): boolean {
  return encoding === undefined || encoding === "identity";
}

/** As Connect's own readers take a header. */
function textOf(value: string | string[] | undefined): string | null {
  return value === undefined ? null : String(value);
}
