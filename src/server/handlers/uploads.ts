/** Client streams whose first message describes the upload. */

/**
 * @param messages at least one: the pipeline rejects a stream without the required fields of the first
 * message
 */
export async function firstOf<T>(messages: AsyncIterable<T>): Promise<{ first: T; all: AsyncIterable<T> }> {
  const iterator = messages[Symbol.asyncIterator]();
  const begin = await iterator.next();
  if (begin.done === true) throw new Error("the stream is empty");
  const first = begin.value;
  return { first, all: from(first, iterator) };
}

/**
 * The pipeline closes `rest`. Closing it here would wait for the sender after a canceled read, and delay the
 * end of the work.
 */
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
