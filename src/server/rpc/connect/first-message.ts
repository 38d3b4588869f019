/** A request stream whose first message is read in advance. */
import type { Message } from "@bufbuild/protobuf";
import { ConnectError } from "@connectrpc/connect";
import { unlessAborted } from "../../../lib/abort.ts";
import { readingError } from "./connect-errors.ts";

export interface FirstMessage {
  /** `undefined` for an empty stream. */
  readonly first: Message | undefined;
  /** The whole stream, including its first message. */
  readonly all: AsyncIterable<Message>;
  /** The read error before the signal aborted; undefined if there is none. */
  readonly failure: unknown;
  /** Stops reading, and tells the sender. */
  close(): void;
}

/**
 * Every read fails with the signal's reason once it aborts: an unread sender may never report its disconnect,
 * and a truncated stream must not look complete.
 */
export async function peekFirst(stream: AsyncIterable<Message>, signal: AbortSignal): Promise<FirstMessage> {
  const iterator = stream[Symbol.asyncIterator]();
  let failure: unknown;
  const noteFailure = (thrown: unknown): never => {
    // Errors after the end of the call are its consequence.
    if (!signal.aborted) failure = thrown;
    // Connect parses the messages of a stream, also while the handler runs.
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

/** Ends an iterator early, and ignores its errors. */
export async function closeIterator(iterator: AsyncIterator<unknown> | undefined): Promise<void> {
  try {
    await iterator?.return?.();
  } catch {
    // The call already has a response.
  }
}
