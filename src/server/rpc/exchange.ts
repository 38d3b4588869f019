/**
 * Serves unary calls of all protocols: recognize → check access → read the body → parse → pipeline → respond
 * → record. Differences between protocols are in `UnaryProtocol`. Requests that no protocol accepts go
 * elsewhere unchanged.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { SvcError, clientGone } from "../../errors.ts";
import type { AbortSource } from "../../lib/abort.ts";
import type { BodyScheduler } from "../../lib/body-scheduler.ts";
import {
  abortResponse,
  declaredSize,
  type IncomingRequest,
  type OutgoingResponse,
} from "../../lib/http-messages.ts";
import type { Log } from "../../lib/log.ts";
import { RequestBody, dropUnread } from "../../lib/request-body.ts";
import { deadlineExceeded, isSvcError, shownError } from "./error-mapping.ts";
import { HttpCall, type HttpCaller } from "./http-call.ts";
import type { Pipeline } from "./pipeline.ts";
import { UnsentResponses } from "./unsent-responses.ts";

/** The requested operation. */
export interface Operation {
  readonly method: DescMethod;
  /** For procedures. */
  readonly url?: string;
  /** The client's timeout in milliseconds. */
  readonly timeoutMs?: number | undefined;
}

export interface UnaryProtocol<Op extends Operation, Caller extends HttpCaller = HttpCaller> {
  readonly name: string;
  /** Limit for the body. */
  readonly maxBodyBytes: number;
  /** Milliseconds for the body to arrive. Default: limited by the caller. */
  readonly bodyTimeoutMs?: number;
  /** Whether a larger body is rejected; otherwise it is handled elsewhere. */
  readonly rejectsLarge: boolean;
  /** Undefined if the request belongs to another protocol or has an unsupported form. @throws SvcError */
  recognise(request: IncomingRequest, caller: Caller): Op | undefined;
  /**
   * Checks the headers after the access check.
   * @throws SvcError to reject the request before its body is read
   */
  admit?(operation: Op, call: HttpCall): void;
  /** Undefined to handle the request elsewhere. @throws SvcError */
  message(operation: Op, body: Buffer, call: HttpCall): Message | undefined;
  send(operation: Op, answer: Message, call: HttpCall): Promise<void> | void;
  /** @param thrown the original of `error` */
  fail(call: HttpCall, error: SvcError, thrown: unknown): void;
}

/** A protocol after the request is recognized. */
type AnsweringProtocol<Op extends Operation> = Omit<UnaryProtocol<Op>, "recognise">;

/**
 * Handles a recognized request that is not unary or cannot be read here. Its body can be iterated from the
 * first byte. Errors get a response.
 */
export type OtherHandler<Op extends Operation> = (operation: Op, call: HttpCall) => Promise<void> | void;

export interface ExchangeOptions {
  readonly pipeline: Pick<Pipeline, "gate" | "invoke" | "recordResponse" | "fairQueue">;
  readonly bodies: BodyScheduler;
  /** Ends all running calls. */
  readonly shutdownSignal?: AbortSignal;
  readonly log: Pick<Log, "error">;
}

const noBytes = Buffer.alloc(0);

export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #unsent = new UnsentResponses();
  /** Abort sources of the running calls. */
  readonly #live = new Map<OutgoingResponse, AbortSource>();
  /** One shared listener: one per response would cost more than routing. */
  readonly #onClosed: (this: OutgoingResponse) => void;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    const live = this.#live;
    this.#onClosed = function () {
      live.get(this)?.abort(clientGone());
    };
    const { shutdownSignal } = options;
    shutdownSignal?.addEventListener("abort", () => {
      for (const source of live.values()) source.abort(shutdownSignal.reason);
    });
  }

  /** Serves a request, or returns `false` at once if the protocol does not recognize it. Never throws. */
  serve<Op extends Operation, Caller extends HttpCaller>(
    protocol: UnaryProtocol<Op, Caller>,
    request: IncomingRequest,
    response: OutgoingResponse,
    caller: Caller,
    elsewhere: OtherHandler<Op>,
  ): boolean {
    const { pipeline } = this.#options;
    const protocolName = protocol.name;
    let operation: Op | undefined;
    try {
      operation = protocol.recognise(request, caller);
      if (operation === undefined) return false;
      // The pipeline records rejected callers.
      caller.isRecorded = true;
      pipeline.gate(operation.method, caller, protocolName);
      caller.isRecorded = false;
    } catch (error) {
      const call = new HttpCall({ request, response, caller, protocolName });
      this.#fail(protocol, call, operation?.method, error);
      return true;
    }
    const { url, timeoutMs } = operation;
    const call = new HttpCall({ request, response, caller, protocolName, url, timeoutMs });
    void this.#answer(protocol, operation, call, elsewhere);
    return true;
  }

  async #answer<Op extends Operation>(
    protocol: AnsweringProtocol<Op>,
    operation: Op,
    call: HttpCall,
    elsewhere: OtherHandler<Op>,
  ): Promise<void> {
    const { pipeline, shutdownSignal } = this.#options;
    const { method } = operation;
    const { response, source } = call;
    this.#live.set(response, source);
    if (shutdownSignal?.aborted === true) source.abort(shutdownSignal.reason);
    response.on("close", this.#onClosed).on("error", this.#onClosed);
    try {
      let message: Message | undefined;
      if (method.methodKind === "unary") {
        const read = this.read(protocol, operation, call);
        message = read instanceof Promise ? await read : read;
      }
      if (message === undefined) {
        await elsewhere(operation, call);
        return;
      }
      call.caller.isRecorded = true;
      const answer = await pipeline.invoke(method, message, call);
      const sent = protocol.send(operation, answer, call);
      if (sent !== undefined) await sent;
      if (call.user.peerUid !== 0) this.#unsent.add(call);
    } catch (error) {
      this.#fail(protocol, call, method, error);
    } finally {
      this.#live.delete(response);
    }
  }

  /** The message of a request; undefined to handle it elsewhere. @throws SvcError */
  read<Op extends Operation>(
    protocol: AnsweringProtocol<Op>,
    operation: Op,
    call: HttpCall,
  ): Promise<Message | undefined> | Message | undefined {
    protocol.admit?.(operation, call);
    // No body to wait for.
    if (declaredSize(call.request) === 0) return protocol.message(operation, noBytes, call);
    return this.#readBody(protocol, operation, call);
  }

  async #readBody<Op extends Operation>(
    protocol: AnsweringProtocol<Op>,
    operation: Op,
    call: HttpCall,
  ): Promise<Message | undefined> {
    const { pipeline, bodies } = this.#options;
    const { maxBodyBytes, bodyTimeoutMs } = protocol;
    const { share } = call;
    using body = new RequestBody(call.request);
    const end = await body.read({
      maxBytes: maxBodyBytes,
      timeoutMs: call.timeoutMs ?? bodyTimeoutMs,
      openBody: () => bodies.open(share),
    });
    await pipeline.fairQueue.wait(share);
    if (end === "cut") throw clientGone();
    if (end === "whole") {
      const message = protocol.message(operation, body.bytes, call);
      if (message !== undefined) return message;
    }
    if (end === "large" && protocol.rejectsLarge) throw tooLarge(maxBodyBytes);
    const leftMs = call.timeoutMs;
    if (leftMs !== undefined && (end === "late" || leftMs <= 0)) throw deadlineExceeded();
    if (end === "late") throw tooLate(bodyTimeoutMs ?? 0);
    body.replay();
    return undefined;
  }

  /** @param method undefined if the request names none */
  #fail(
    protocol: Pick<UnaryProtocol<Operation>, "fail">,
    call: HttpCall,
    method: DescMethod | undefined,
    thrown: unknown,
  ): void {
    const { pipeline, log } = this.#options;
    const { request, response, caller, requestId } = call;
    const error = shownError(thrown, requestId);
    if (error.code === "internal" && !isSvcError(thrown))
      log.error({ requestId, err: thrown }, "unexpected error in a request");
    if (!caller.isRecorded) {
      caller.isRecorded = true;
      pipeline.recordResponse(method, call, error);
    }
    if (response.headersSent) {
      abortResponse(response);
      return;
    }
    dropUnread(request, response);
    try {
      protocol.fail(call, error, thrown);
    } catch (err) {
      log.error({ requestId, err }, "failed to send an error response");
      response.destroy();
    }
  }
}

function tooLarge(maxBytes: number): SvcError {
  return new SvcError("body_too_large", `the body must not be larger than ${maxBytes} bytes`);
}

function tooLate(timeoutMs: number): SvcError {
  return new SvcError("deadline_exceeded", `the body did not arrive within ${timeoutMs / 1000} s`);
}
