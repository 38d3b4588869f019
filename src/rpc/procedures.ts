/**
 * The procedures of gRPC and Connect in the form that nearly all calls have: one message each way, the request's not compressed.
 * Connect for Node makes streams of every call, which cost more than all the rest of one. Whatever has another form, from a
 * compressed message to one that cannot be read, is handed over as it came: to do it, and to refuse it, is Connect for Node's.
 */
import type { IncomingHttpHeaders } from "node:http";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { DescMethodUnary, Message } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import type { SvcError } from "../errors.ts";
import type { IncomingRequest, OutgoingResponse } from "../lib/http-messages.ts";
import { connectErrorOf } from "./connect-errors.ts";
import type { Exchange, Operation, UnaryProtocol } from "./exchange.ts";
import type { HttpCaller } from "./http-call.ts";
import type { Pipeline } from "./pipeline.ts";

export interface Procedure extends Operation {
  readonly method: DescMethodUnary;
}

export interface ProcedureProtocol extends UnaryProtocol<Procedure> {
  /** @param timeoutMs a whole number, which the next reader of the headers takes for the call's */
  putTimeout(headers: IncomingHttpHeaders, timeoutMs: number): void;
}

export interface ProcedureOptions {
  readonly pipeline: Pick<Pipeline, "methodAt" | "jsonOptions">;
  /** One message. */
  readonly maxMessageBytes: number;
  /** Longest deadline that a client may ask for. */
  readonly maxTimeoutMs: number;
}

/** What a client gives its call; `error` says that it cannot be read or is too long. */
interface Timeout {
  readonly timeoutMs?: number | undefined;
  readonly error?: ConnectError | undefined;
}

/** Serves a request, or says `false` at once for one that has another form. */
export type Procedures = (
  request: IncomingRequest,
  response: OutgoingResponse,
  caller: HttpCaller,
  handOver: () => void,
) => boolean;

export function createProcedures(exchange: Exchange, protocols: readonly ProcedureProtocol[]): Procedures {
  return (request, response, caller, handOver) =>
    protocols.some((protocol) =>
      exchange.serve(protocol, request, response, caller, (_procedure, { timeoutMs }) => {
        // Or it would get the whole time anew.
        if (timeoutMs !== undefined) protocol.putTimeout(request.headers, Math.ceil(timeoutMs));
        handOver();
      }),
    );
}

/** Larger messages are rare, and take their time anyhow. */
const maxPlainBytes = 64 * 1024;

/** What all of them share. */
export function boundsOf({ maxMessageBytes }: ProcedureOptions) {
  return { maxBodyBytes: Math.min(maxPlainBytes, maxMessageBytes), refusesLarge: false };
}

/** The procedure that a request asks for. */
export function procedureAt(
  { pipeline }: ProcedureOptions,
  { method: httpMethod, url = "" }: IncomingRequest,
  { timeoutMs, error }: Timeout,
): Procedure | undefined {
  if (httpMethod !== "POST" || error !== undefined || timeoutMs === 0) return undefined;
  const method = pipeline.methodAt(url);
  if (method?.methodKind !== "unary") return undefined;
  // Nobody needs the host once it is checked.
  return { method: method as DescMethodUnary, url: `http://localhost${url}`, timeoutMs };
}

/** What `read` makes of a body; undefined when it is no message. */
export function readable(read: () => Message): Message | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** As Connect has it: what is smaller is not worth compressing. */
const minCompressedBytes = 1024;

export const compress = (bytes: Uint8Array): Promise<Buffer> => promisify(gzip)(bytes);

/** Whether an answer is worth it, and its client takes it so. The names alone count, as for Connect. */
export function isToCompress({ length }: Uint8Array, accepted: string | string[] | undefined): boolean {
  return (
    length >= minCompressedBytes &&
    accepted !== undefined &&
    String(accepted)
      .split(",")
      .some((name) => name.trim() === "gzip")
  );
}

export function isUncompressed(encoding: string | string[] | undefined): boolean {
  return encoding === undefined || encoding === "identity";
}

/** As Connect's own readers take a header. */
export function textOf(value: string | string[] | undefined): string | null {
  return value === undefined ? null : String(value);
}

export function appendHeaders(response: OutgoingResponse, headers: Headers | undefined, prefix = ""): void {
  if (headers === undefined) return;
  for (const [name, value] of headers) response.appendHeader(prefix + name, value);
}

/** A handler's own error of Connect's is sent as it is. */
export function errorToSend(error: SvcError, thrown: unknown): ConnectError {
  return thrown instanceof ConnectError ? thrown : connectErrorOf(error);
}
