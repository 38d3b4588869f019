/** A request stream whose first message is looked at before the handler gets the whole. */
import type { Message } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { readingError } from "./connect-errors.ts";

export interface FirstMessage {
  /** `undefined` for an empty stream. */
  readonly first: Message | undefined;
  /** The whole stream, its first message included. */
  readonly all: AsyncIterable<Message>;
  /** What the reading of it has failed with before the signal aborted; `undefined` so far. */
  readonly failure: unknown;
  /** Tells the sender that nobody reads on. */
  close(): void;
}

/**
 * The reading of every message, of the first one too, fails with the signal's reason when it aborts before: a sender that is
 * not read any more may never say that it has gone, and what ends early must not look whole.
 */
export async function peekFirst(stream: AsyncIterable<Message>, signal: AbortSignal): Promise<FirstMessage> {
  const iterator = stream[Symbol.asyncIterator]();
  let failure: unknown;
  const noteFailure = (thrown: unknown): never => {
    // What breaks once the call has ended breaks because of that.
    if (!signal.aborted) failure = thrown;
    // Connect reads the messages of a stream, the later ones while its handler runs.
    throw thrown instanceof ConnectError ? readingError(thrown) : thrown;
  };
  const read = (): Promise<IteratorResult<Message>> =>
    unlessAborted(iterator.next().catch(noteFailure), signal);
  const head = await read().catch((error: unknown) => {
    void closeIterator(iterator);
    throw error;
  });
  let isFirst = true;
  const all: AsyncIterableIterator<Message> = {
    [Symbol.asyncIterator]: () => all,
    next() {
      if (!isFirst) return read();
      isFirst = false;
      return Promise.resolve(head);
    },
    async return() {
      await closeIterator(iterator);
      return { done: true, value: undefined };
    },
  };
  return {
    first: head.done === true ? undefined : head.value,
    all,
    get failure() {
      return failure;
    },
    close: () => void closeIterator(iterator),
  };
}

/** Ends an iterator early; what it throws while doing so concerns nobody any more. */
export async function closeIterator(iterator: AsyncIterator<unknown> | undefined): Promise<void> {
  try {
    await iterator?.return?.();
  } catch {
    // Its call already has an answer.
  }
}
