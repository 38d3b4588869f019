/**
 * One call with one message each way, from its request to its answer, whatever the protocol: recognise → gate → read the body →
 * message → pipeline → answer → note. What the protocols do differently is `UnaryProtocol`'s; what none of them takes goes
 * elsewhere as it came.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { SvcError, clientGone } from "../errors.ts";
import type { AbortSource } from "../lib/abort-source.ts";
import type { BodyTurns } from "../lib/body-turns.ts";
import {
  breakOffAnswer,
  declaredSize,
  type IncomingRequest,
  type OutgoingResponse,
} from "../lib/http-messages.ts";
import type { Log } from "../lib/log.ts";
import { RequestBody, dropUnread } from "../lib/request-body.ts";
import { deadlineExceeded, isSvcError, shownError } from "./error-mapping.ts";
import { HttpCall, type HttpCaller } from "./http-call.ts";
import type { Pipeline } from "./pipeline.ts";
import { UnsentAnswers } from "./unsent-answers.ts";

/** What a request asks for. */
export interface Operation {
  readonly method: DescMethod;
  /** Of procedures. */
  readonly url?: string;
  /** Milliseconds that the client gives the call. */
  readonly timeoutMs?: number | undefined;
}

export interface UnaryProtocol<Op extends Operation> {
  readonly name: string;
  /** Largest body that is read. */
  readonly maxBodyBytes: number;
  /** How long it may take to arrive. Default: whoever made the request bounds it. */
  readonly bodyTimeoutMs?: number;
  /** Whether a larger body is refused; otherwise it goes elsewhere. */
  readonly refusesLarge: boolean;
  /** Undefined for what is not this protocol's, or not in the form that it takes. @throws SvcError */
  recognise(request: IncomingRequest): Op | undefined;
  /** Looks at the headers, once the caller may call. @throws SvcError for what is refused before its body is read */
  admit?(operation: Op, call: HttpCall): void;
  /** Undefined for what is better read elsewhere. @throws SvcError */
  message(operation: Op, body: Buffer, call: HttpCall): Message | undefined;
  send(operation: Op, answer: Message, call: HttpCall): Promise<void> | void;
  /** @param thrown what `error` was made of */
  fail(call: HttpCall, error: SvcError, thrown: unknown): void;
}

/**
 * Takes a request that is recognised, but not one message each way, or not to be read here. Its body can be iterated over from
 * its first byte. What it throws is answered.
 */
export type Elsewhere<Op extends Operation> = (operation: Op, call: HttpCall) => Promise<void> | void;

export interface ExchangeOptions {
  readonly pipeline: Pick<Pipeline, "gate" | "invoke" | "noteAnswer" | "turns">;
  readonly bodies: BodyTurns;
  /** Ends every call under way. */
  readonly shutdownSignal?: AbortSignal;
  readonly log: Pick<Log, "error">;
}

const noBytes = Buffer.alloc(0);

export class Exchange {
  readonly #options: ExchangeOptions;
  readonly #unsent = new UnsentAnswers();
  /** The ends of the calls under way. */
  readonly #live = new Map<OutgoingResponse, AbortSource>();
  /** One listener for all responses: making, adding and removing one for each costs more than routing does. */
  readonly #onGone: (this: OutgoingResponse) => void;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    const live = this.#live;
    this.#onGone = function () {
      live.get(this)?.abort(clientGone());
    };
    const { shutdownSignal } = options;
    shutdownSignal?.addEventListener("abort", () => {
      for (const source of live.values()) source.abort(shutdownSignal.reason);
    });
  }

  /** Serves a request, or says `false` at once for one that is not the protocol's. Never throws. */
  serve<Op extends Operation>(
    protocol: UnaryProtocol<Op>,
    request: IncomingRequest,
    response: OutgoingResponse,
    caller: HttpCaller,
    elsewhere: Elsewhere<Op>,
  ): boolean {
    const { pipeline } = this.#options;
    const protocolName = protocol.name;
    let operation: Op | undefined;
    try {
      operation = protocol.recognise(request);
      if (operation === undefined) return false;
      // The pipeline notes whom it turns away.
      caller.isNoted = true;
      pipeline.gate(operation.method, caller.user, caller.requestId, protocolName);
      caller.isNoted = false;
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
    protocol: UnaryProtocol<Op>,
    operation: Op,
    call: HttpCall,
    elsewhere: Elsewhere<Op>,
  ): Promise<void> {
    const { pipeline, shutdownSignal } = this.#options;
    const { method } = operation;
    const { response, source } = call;
    this.#live.set(response, source);
    if (shutdownSignal?.aborted === true) source.abort(shutdownSignal.reason);
    response.on("close", this.#onGone).on("error", this.#onGone);
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
      call.caller.isNoted = true;
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

  /** The message of a request; undefined for one that the protocol leaves to others. @throws SvcError */
  read<Op extends Operation>(
    protocol: UnaryProtocol<Op>,
    operation: Op,
    call: HttpCall,
  ): Promise<Message | undefined> | Message | undefined {
    protocol.admit?.(operation, call);
    // Nothing to wait for.
    if (declaredSize(call.request) === 0) return protocol.message(operation, noBytes, call);
    return this.#readBody(protocol, operation, call);
  }

  async #readBody<Op extends Operation>(
    protocol: UnaryProtocol<Op>,
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
      openTurn: () => bodies.open(share),
    });
    await pipeline.turns.wait(share);
    if (end === "cut") throw clientGone();
    if (end === "whole") {
      const message = protocol.message(operation, body.bytes, call);
      if (message !== undefined) return message;
    }
    if (end === "large" && protocol.refusesLarge) throw tooLarge(maxBodyBytes);
    const leftMs = call.timeoutMs;
    if (leftMs !== undefined && (end === "late" || leftMs <= 0)) throw deadlineExceeded();
    if (end === "late") throw tooLate(bodyTimeoutMs ?? 0);
    body.replay();
    return undefined;
  }

  /** @param method undefined for what names none */
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
      log.error({ requestId, err: thrown }, "a request failed unexpectedly");
    if (!caller.isNoted) {
      caller.isNoted = true;
      pipeline.noteAnswer(method, call, error);
    }
    if (response.headersSent) {
      breakOffAnswer(response);
      return;
    }
    dropUnread(request, response);
    try {
      protocol.fail(call, error, thrown);
    } catch (err) {
      log.error({ requestId, err }, "a refusal could not be sent");
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
