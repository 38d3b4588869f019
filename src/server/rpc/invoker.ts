/** Runs one call on any transport: access, validation, handler, error mapping, audit. */
import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type { SvcError } from "../../errors.ts";
import type { FairQueue } from "../../lib/fair-queue.ts";
import { onShareOf } from "../../lib/share-owner.ts";
import { checkAccess } from "./access.ts";
import type { MethodEntry } from "./bound-service.ts";
import type { Call, CallContext } from "./call-context.ts";
import type { CallRecorder } from "./call-recorder.ts";
import { errorOfAbort, shownError } from "./error-mapping.ts";
import { closeIterator, peekFirst, type FirstMessage } from "./connect/first-message.ts";
import { Validator } from "./rules.ts";
import type { RunningCalls } from "./running-calls.ts";
import { shareName, shareUid } from "./user-context.ts";

/** The input of a method. */
export type Input = Message | AsyncIterable<Message>;

/** Calls handlers. Its methods throw only SvcError. */
export class Invoker {
  readonly #fairQueue: FairQueue;
  readonly #running: RunningCalls;
  readonly #recorder: CallRecorder;
  readonly #validator = new Validator();

  constructor(running: RunningCalls, recorder: CallRecorder, fairQueue: FairQueue) {
    this.#fairQueue = fairQueue;
    this.#running = running;
    this.#recorder = recorder;
  }

  /** A call with a single response, from one message or a stream. */
  single(entry: MethodEntry, input: Input, call: Call, connect?: HandlerContext): Promise<Message> {
    const startMs = performance.now();
    const { method } = entry;
    const context = this.#running.begin(method, call, connect);
    let request: Message | undefined;
    let stream: FirstMessage | undefined;

    /** Returns the handler's response, or a promise of the response. */
    const start = (): unknown => {
      if (call.admittedTo !== method) checkAccess(method, entry.access, context.user);
      this.#running.checkBounds(context);
      return Symbol.asyncIterator in input ? handleStream(input) : handle(input, input);
    };
    const handleStream = async (messages: AsyncIterable<Message>): Promise<unknown> => {
      stream = await peekFirst(messages, context.signal);
      return handle(stream.first ?? create(method.input), stream.all);
    };
    const handle = (first: Message, whole: Input): unknown => {
      request = first;
      this.#running.holdRequest(context, first);
      this.#validator.check(method.input, first);
      // The token may have been revoked while the request arrived.
      context.throwIfAborted();
      return onShareOf(shareUid(context.user), () => entry.handler(whole, context));
    };
    // One promise instead of a chain, which would cost more than the rest.
    return new Promise((resolve, reject) => {
      // Counts until the work has ended; otherwise clients that disconnect repeatedly would not be limited.
      const leave = (): void => {
        this.#running.end(context);
        stream?.close();
      };
      // The outcome is recorded even if the caller has disconnected.
      const fail = (thrown: unknown): void => {
        const error = unreadable(stream, context) ?? errorIn(context, thrown);
        this.#recorder.recordCall(entry, context, startMs, request, error);
        reject(error);
        leave();
      };
      const answer = (output: unknown): void => {
        let message: Message;
        try {
          message = create(method.output, output as MessageInitShape<DescMessage>);
        } catch (error) {
          fail(error);
          return;
        }
        this.#recorder.recordCall(entry, context, startMs, request);
        resolve(message);
        leave();
      };
      context.onAbort((error) => {
        reject(unreadable(stream, context) ?? error);
        stream?.close();
      });
      try {
        const output = start();
        if (output instanceof Promise) output.then(answer, fail);
        else answer(output);
      } catch (error) {
        fail(error);
      }
    });
  }

  /** A call with a stream of responses. */
  async *many(
    entry: MethodEntry,
    input: Input,
    call: Call,
    connect?: HandlerContext,
  ): AsyncGenerator<Message> {
    const startMs = performance.now();
    const { method } = entry;
    const context = this.#running.begin(method, call, connect);
    const share = shareName(call.user);
    let request: Message | undefined;
    let stream: FirstMessage | undefined;
    let iterator: AsyncIterator<unknown> | undefined;
    let failure: SvcError | undefined;
    let isDone = false;
    try {
      if (call.admittedTo !== method) checkAccess(method, entry.access, context.user);
      this.#running.checkBounds(context);
      if (Symbol.asyncIterator in input) stream = await peekFirst(input, context.signal);
      request = stream === undefined ? (input as Message) : (stream.first ?? create(method.input));
      this.#running.holdRequest(context, request);
      this.#validator.check(method.input, request);
      context.throwIfAborted();
      const uid = shareUid(context.user);
      const output = entry.handler(stream?.all ?? input, context) as AsyncIterable<unknown>;
      const messages = output[Symbol.asyncIterator]();
      iterator = messages;
      for (;;) {
        const next = await context.race(onShareOf(uid, () => messages.next()));
        if (next.done === true) break;
        // A stream that always has data would block other users.
        const turn = this.#fairQueue.wait(share);
        if (turn !== undefined) await context.race(turn);
        yield create(method.output, next.value as MessageInitShape<DescMessage>);
      }
      isDone = true;
    } catch (thrown) {
      failure = errorIn(context, thrown);
      throw failure;
    } finally {
      this.#running.end(context);
      // Not awaited: if a generator hangs in `next`, its `return` hangs, too.
      if (!isDone) void closeIterator(iterator);
      stream?.close();
      this.#recorder.recordCall(
        entry,
        context,
        startMs,
        request,
        failure ?? (isDone ? undefined : errorOfAbort(undefined)),
      );
    }
  }
}

/** The error of a call for its caller. */
function errorIn(context: CallContext, thrown: unknown): SvcError {
  return shownError(thrown, context.requestId, context.isAborted ? context.signal : undefined);
}

/** A read error also closes the request stream, which would otherwise look like a disconnect. */
function unreadable(stream: FirstMessage | undefined, context: CallContext): SvcError | undefined {
  if (stream?.failure === undefined) return undefined;
  const error = errorIn(context, stream.failure);
  return error.code === "canceled" ? undefined : error;
}
