/**
 * One call from its beginning to its end, whatever the transport: access level, validation, handler, error mapping,
 * audit (D2, D8).
 */
import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import type { SvcError } from "../errors.ts";
import type { FairTurns } from "../lib/fair-turns.ts";
import { checkAccess } from "./access.ts";
import type { MethodEntry } from "./bound-service.ts";
import type { Call } from "./call-context.ts";
import type { CallNotes } from "./call-notes.ts";
import { errorOfAbort, shownError } from "./error-mapping.ts";
import { closeIterator, peekFirst, type FirstMessage } from "./first-message.ts";
import { Validator } from "./rules.ts";
import type { RunningCalls } from "./running-calls.ts";
import { shareName } from "./user-context.ts";

/** What a method is called with. */
export type Input = Message | AsyncIterable<Message>;

/** Both throw SvcError and nothing else. */
export class Invoker {
  readonly #turns: FairTurns;
  readonly #running: RunningCalls;
  readonly #notes: CallNotes;
  readonly #validator = new Validator();

  constructor(running: RunningCalls, notes: CallNotes, turns: FairTurns) {
    this.#turns = turns;
    this.#running = running;
    this.#notes = notes;
  }

  /** One answer, from one message or a stream of them. */
  single(entry: MethodEntry, input: Input, call: Call, connect?: HandlerContext): Promise<Message> {
    const startMs = performance.now();
    const { method } = entry;
    const context = this.#running.begin(method, call, connect);
    let request: Message | undefined;
    let stream: FirstMessage | undefined;

    /** What the handler answers, or the promise of it. */
    const start = (): unknown => {
      checkAccess(method, entry.access, context.user);
      this.#running.checkBounds(context);
      return Symbol.asyncIterator in input ? handleStream(input) : handle(input, input);
    };
    const handleStream = async (messages: AsyncIterable<Message>): Promise<unknown> => {
      stream = await peekFirst(messages, context.signal);
      return handle(stream.first ?? create(method.input), stream.all);
    };
    const handle = (first: Message, whole: Input): unknown => {
      request = first;
      this.#validator.check(method.input, first);
      // Its token may have been revoked while the request arrived.
      context.throwIfAborted();
      return entry.handler(whole, context);
    };
    // One promise instead of a chain of them, which would cost more than all else here.
    return new Promise((resolve, reject) => {
      // It counts until its work has ended: who asks and leaves, again and again, would have no bound.
      const leave = (): void => {
        this.#running.end(context);
        stream?.close();
      };
      // What the handler came to is noted also when the caller has left before.
      const fail = (thrown: unknown): void => {
        const aborted = context.isAborted ? context.signal : undefined;
        const error = unreadable(stream, context.requestId) ?? shownError(thrown, context.requestId, aborted);
        this.#notes.ended(entry, context, startMs, request, error);
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
        this.#notes.ended(entry, context, startMs, request);
        resolve(message);
        leave();
      };
      context.onAbort((error) => {
        reject(unreadable(stream, context.requestId) ?? error);
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

  /** Many answers. */
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
      checkAccess(method, entry.access, context.user);
      this.#running.checkBounds(context);
      if (Symbol.asyncIterator in input) stream = await peekFirst(input, context.signal);
      request = stream === undefined ? (input as Message) : (stream.first ?? create(method.input));
      this.#validator.check(method.input, request);
      context.throwIfAborted();
      const output = entry.handler(stream?.all ?? input, context) as AsyncIterable<unknown>;
      iterator = output[Symbol.asyncIterator]();
      for (;;) {
        const next = await context.race(iterator.next());
        if (next.done === true) break;
        // A stream that always has more would leave no room for anybody else.
        const turn = this.#turns.wait(share);
        if (turn !== undefined) await context.race(turn);
        yield create(method.output, next.value as MessageInitShape<DescMessage>);
      }
      isDone = true;
    } catch (thrown) {
      failure = shownError(thrown, context.requestId, context.isAborted ? context.signal : undefined);
      throw failure;
    } finally {
      this.#running.end(context);
      // Not awaited: a generator that hangs in its `next` would hold its `return` up as well.
      if (!isDone) void closeIterator(iterator);
      stream?.close();
      this.#notes.ended(
        entry,
        context,
        startMs,
        request,
        failure ?? (isDone ? undefined : errorOfAbort(undefined)),
      );
    }
  }
}

/** What could not be read ends the connection's side, too, which then looks like a client that has gone. */
function unreadable(stream: FirstMessage | undefined, requestId: string): SvcError | undefined {
  if (stream?.failure === undefined) return undefined;
  const error = shownError(stream.failure, requestId);
  return error.code === "canceled" ? undefined : error;
}
