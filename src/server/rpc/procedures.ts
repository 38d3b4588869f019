/**
 * Procedures of gRPC and Connect in the most frequent form: unary, with an uncompressed request. Connect for
 * Node uses streams for every call, which cost more than the rest of a call. All other forms, including
 * unreadable messages, are passed unchanged to Connect for Node, which serves or rejects them.
 */
import type { IncomingHttpHeaders } from "node:http";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import type { DescMethodUnary, Message } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import type { SvcError } from "../../errors.ts";
import type { IncomingRequest, OutgoingResponse } from "../../lib/http-messages.ts";
import { connectErrorOf } from "./connect/connect-errors.ts";
import type { Exchange, Operation, UnaryProtocol } from "./exchange.ts";
import type { HttpCaller } from "./http-call.ts";
import type { Pipeline } from "./pipeline.ts";

export interface Procedure extends Operation {
  readonly method: DescMethodUnary;
}

export interface ProcedureProtocol extends UnaryProtocol<Procedure> {
  /** @param timeoutMs a whole number, for the next reader of the headers */
  putTimeout(headers: IncomingHttpHeaders, timeoutMs: number): void;
}

export interface ProcedureOptions {
  readonly pipeline: Pick<Pipeline, "methodAt" | "jsonOptions">;
  /** Size limit of a message. */
  readonly maxMessageBytes: number;
  /** Longest timeout that a client may set. */
  readonly maxTimeoutMs: number;
}

/** The client's timeout; `error` if it is invalid or too long. */
interface Timeout {
  readonly timeoutMs?: number | undefined;
  readonly error?: ConnectError | undefined;
}

/** Serves a request, or returns `false` at once if it has another form. */
export type ServeProcedure = (
  request: IncomingRequest,
  response: OutgoingResponse,
  caller: HttpCaller,
  passOn: () => void,
) => boolean;

export function createProcedureServer(
  exchange: Exchange,
  protocols: readonly ProcedureProtocol[],
): ServeProcedure {
  return (request, response, caller, passOn) =>
    protocols.some((protocol) =>
      exchange.serve(protocol, request, response, caller, (_procedure, { timeoutMs }) => {
        // Otherwise the full timeout would start again.
        if (timeoutMs !== undefined) protocol.putTimeout(request.headers, Math.ceil(timeoutMs));
        passOn();
      }),
    );
}

/** Larger messages are rare, and slow in any case. */
const maxPlainBytes = 64 * 1024;

/** Limits that all procedures share. */
export function boundsOf({ maxMessageBytes }: ProcedureOptions) {
  return { maxBodyBytes: Math.min(maxPlainBytes, maxMessageBytes), rejectsLarge: false };
}

/** The procedure of a request. */
export function procedureAt(
  { pipeline }: ProcedureOptions,
  { method: httpMethod, url = "" }: IncomingRequest,
  { timeoutMs, error }: Timeout,
): Procedure | undefined {
  if (httpMethod !== "POST" || error !== undefined || timeoutMs === 0) return undefined;
  const method = pipeline.methodAt(url);
  if (method?.methodKind !== "unary") return undefined;
  // After its check, the host is not needed.
  return { method: method as DescMethodUnary, url: `http://localhost${url}`, timeoutMs };
}

/** The result of `read`; undefined if the body is not a valid message. */
export function readable(read: () => Message): Message | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** Connect's minimum size for compression. */
const minCompressedBytes = 1024;

export const compress = (bytes: Uint8Array): Promise<Buffer> => promisify(gzip)(bytes);

/**
 * Whether a response is large enough and the client accepts gzip. Quality values are ignored, as in Connect.
 */
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

/** A header in the form that Connect's parsers expect. */
export function textOf(value: string | string[] | undefined): string | null {
  return value === undefined ? null : String(value);
}

export function appendHeaders(response: OutgoingResponse, headers: Headers | undefined, prefix = ""): void {
  if (headers === undefined) return;
  for (const [name, value] of headers) response.appendHeader(prefix + name, value);
}

/** A ConnectError of a handler is sent unchanged. */
export function errorToSend(error: SvcError, thrown: unknown): ConnectError {
  return thrown instanceof ConnectError ? thrown : connectErrorOf(error);
}
