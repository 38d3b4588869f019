/** Adds a message to a stream whenever it was silent for a time. */
import { closeIterator } from "./connect/first-message.ts";

/** @param empty creates the message that is added */
export async function* withKeepAlives<T, E>(
  messages: AsyncIterable<T>,
  intervalMs: number,
  empty: () => E,
): AsyncGenerator<T | E> {
  const iterator = messages[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = iterator.next();
      let result = await unlessSilent(next, intervalMs);
      while (result === undefined) {
        yield empty();
        result = await unlessSilent(next, intervalMs);
      }
      if (result.done === true) return;
      yield result.value;
    }
  } finally {
    // Not awaited: if the iterator hangs in `next`, its `return` hangs, too.
    void closeIterator(iterator);
  }
}

/** The result; undefined if it does not arrive within `ms`. */
function unlessSilent<T>(next: Promise<T>, ms: number): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(undefined), ms);
    next.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
