/**
 * Unary calls of gRPC and Connect in their plain form, without the streams that Connect for Node makes of every call, which
 * cost more than all the rest of one. It walks the same way through the pipeline. Whatever is not plain, from a packed
 * message to one that cannot be read, is handed over as it came: to do it, and to refuse it, is Connect for Node's.
 */
import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import type { DescMethodUnary, Message } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { clientGone } from "../errors.ts";
import { connectErrorOf } from "./connect-errors.ts";
import { deadlineExceeded, shownError } from "./error-mapping.ts";
import type { Pipeline } from "./pipeline.ts";
import { HttpCall } from "./http-call.ts";
import { plainConnect, plainGrpc } from "./plain-protocols.ts";
import type { PlainProtocol, UnaryResponse } from "./plain-protocols.ts";
import { readSmallBody, replayBody } from "./small-body.ts";
import { shareName } from "./user-context.ts";
import type { UserContext } from "./user-context.ts";

/** The request of node's `http` and `http2` servers, as much of it as a unary call needs. */
export interface UnaryRequest extends Readable {
  readonly method?: string | undefined;
  /** The request target. */
  readonly url?: string | undefined;
  readonly httpVersionMajor: number;
  readonly headers: IncomingHttpHeaders;
}

export interface PlainUnaryOptions {
  readonly pipeline: Pipeline;
  /** One message. */
  readonly maxMessageBytes: number;
  /** Longest deadline that a client may ask for. */
  readonly maxTimeoutMs: number;
}

/** Who calls, and what becomes of the request when it turns out not to be plain. */
export interface PlainCaller {
  readonly user: UserContext;
  readonly requestId: string;
  /** Takes the request, whose body can be iterated over from its first byte. */
  readonly handOver: () => void;
  /** Hears of a defect that kept the answer back. */
  readonly failed: (error: unknown) => void;
}

/** Answers a request, or says `false` at once for one that is not plain. */
export type PlainUnary = (request: UnaryRequest, response: UnaryResponse, caller: PlainCaller) => boolean;

/** Larger messages are rare, and take their time anyhow. */
const maxPlainBytes = 64 * 1024;

/** As Connect has it: what is smaller is not worth packing. */
const minPackedBytes = 1024;

const pack = promisify(gzip);

export function createPlainUnary({ pipeline, maxMessageBytes, maxTimeoutMs }: PlainUnaryOptions): PlainUnary {
  const maxBodyBytes = Math.min(maxPlainBytes, maxMessageBytes);

  return (request, response, caller) => {
    if (request.method !== "POST") return false;
    const path = request.url ?? "";
    const method = pipeline.methodAt(path);
    if (method?.methodKind !== "unary") return false;
    const { headers, httpVersionMajor } = request;
    const protocol = protocols.find((each) => each.isPlain(headers, httpVersionMajor));
    if (protocol === undefined) return false;
    const { timeoutMs, error } = protocol.timeoutOf(headers, maxTimeoutMs);
    if (error !== undefined || timeoutMs === 0) return false;

    const { user, requestId } = caller;
    const call = new HttpCall({
      user,
      requestId,
      protocolName: protocol.name,
      // Nobody needs the host once it is checked.
      url: `http://localhost${path}`,
      timeoutMs,
      headers,
    });
    try {
      pipeline.gate(method, user, requestId, protocol.name);
    } catch (refusal) {
      protocol.fail(response, call, connectErrorOfAny(refusal, requestId));
      return true;
    }
    answer({ protocol, method: method as DescMethodUnary, request, response, call }, caller.handOver).catch(
      caller.failed,
    );
    return true;
  };

  async function answer(asked: Asked, handOver: () => void): Promise<void> {
    const { protocol, method, request, response, call } = asked;
    const body = await readSmallBody(request, maxBodyBytes, call.timeoutMs);
    await pipeline.turns.wait(shareName(call.user));
    if (body.end === "cut") {
      pipeline.noteAnswer(method, call, clientGone());
      return;
    }
    const input = body.end === "whole" ? readMessage(protocol, method, body.chunks) : undefined;
    const leftMs = call.timeoutMs;
    if (body.end === "late" || (input === undefined && leftMs !== undefined && leftMs <= 0)) {
      const error = deadlineExceeded();
      pipeline.noteAnswer(method, call, error);
      protocol.fail(response, call, connectErrorOf(error));
      return;
    }
    if (input === undefined) {
      // Or it would get the whole time anew.
      if (leftMs !== undefined) protocol.putTimeout(request.headers, Math.ceil(leftMs));
      replayBody(request, body);
      handOver();
      return;
    }
    let output: Message;
    try {
      output = await untilGone(response, call, pipeline.invokeUnary(method, input, call));
    } catch (thrown) {
      protocol.fail(response, call, connectErrorOfAny(thrown, call.requestId));
      return;
    }
    const bytes = toBinary(method.output, output);
    const isPacked = bytes.length >= minPackedBytes && takesGzip(request.headers[protocol.acceptHeader]);
    protocol.send(response, call, { bytes: isPacked ? await pack(bytes) : bytes, isPacked });
  }
}

interface Asked {
  readonly protocol: PlainProtocol;
  readonly method: DescMethodUnary;
  readonly request: UnaryRequest;
  readonly response: UnaryResponse;
  readonly call: HttpCall;
}

const protocols = [plainGrpc, plainConnect];

/** Undefined for what is no message of the method, or not just one. */
function readMessage(
  protocol: PlainProtocol,
  method: DescMethodUnary,
  chunks: readonly Buffer[],
): Message | undefined {
  const [first] = chunks;
  const bytes = protocol.messageIn(
    first !== undefined && chunks.length === 1 ? first : Buffer.concat(chunks),
  );
  try {
    return bytes === undefined ? undefined : fromBinary(method.input, bytes);
  } catch {
    return undefined;
  }
}

/** Aborts the call when its client goes away before `work` is done. */
async function untilGone<T>(response: UnaryResponse, { source }: HttpCall, work: Promise<T>): Promise<T> {
  let isDone = false;
  const onGone = (): void => {
    if (!isDone) source.abort(clientGone());
  };
  response.on("close", onGone).on("error", onGone);
  try {
    return await work;
  } finally {
    isDone = true;
  }
}

/** The names alone count, as for Connect. */
function takesGzip(accepted: string | string[] | undefined): boolean {
  return (
    accepted !== undefined &&
    String(accepted)
      .split(",")
      .some((name) => name.trim() === "gzip")
  );
}

/** The pipeline throws nothing but `SvcError`s; what else there may be must not be shown as it is. */
function connectErrorOfAny(thrown: unknown, requestId: string): ConnectError {
  return thrown instanceof ConnectError ? thrown : connectErrorOf(shownError(thrown, requestId));
}
