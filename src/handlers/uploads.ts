/** Streams of a client whose first message says what the bytes in all of them are for. */

/** @param messages at least one: the pipeline refuses a stream that does not say what is required of its first */
export async function firstOf<T>(messages: AsyncIterable<T>): Promise<{ first: T; all: AsyncIterable<T> }> {
  const iterator = messages[Symbol.asyncIterator]();
  const begin = await iterator.next();
  if (begin.done === true) throw new Error("the stream is empty");
  const first = begin.value;
  return { first, all: from(first, iterator) };
}

/** The pipeline closes `rest`. Closing it here would wait for the sender where a read of it was given up, and so hold up the work's end. */
async function* from<T>(first: T, rest: AsyncIterator<T>): AsyncGenerator<T> {
  yield first;
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
}

export async function* contentsOf(
  messages: AsyncIterable<{ content?: { data: Uint8Array } | undefined }>,
): AsyncGenerator<Uint8Array> {
  for await (const { content } of messages) {
    if (content !== undefined && content.data.length > 0) yield content.data;
  }
}
