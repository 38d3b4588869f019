/** Streams of a client whose first message says what the others are about. */
import { invalidField } from "../errors.ts";

/** @throws SvcError `invalid_request` for a stream without any message */
export async function firstOf<T>(messages: AsyncIterable<T>): Promise<{ first: T; all: AsyncIterable<T> }> {
  const iterator = messages[Symbol.asyncIterator]();
  const begin = await iterator.next();
  if (begin.done === true) throw invalidField("path", "is required");
  const first = begin.value;
  return { first, all: from(first, iterator) };
}

async function* from<T>(first: T, rest: AsyncIterator<T>): AsyncGenerator<T> {
  try {
    yield first;
    for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}
