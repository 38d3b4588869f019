/** Content of a file of the host: read by the daemon itself once a helper has handed the open file over, or sent by the helper. */
import { PassThrough, type Readable } from "node:stream";
import { readPieces } from "../lib/file-pieces.ts";
import { readContentHead } from "./host-answers.ts";
import type { HandedFile, HandedFiles } from "./handed-files.ts";
import { toSvcError } from "./helper-errors.ts";
import type { HostContent } from "./host-work.ts";

/** What is said to a helper whose file has been taken; nothing, when it has not. */
const taken = Buffer.from("1");

/** @param input What is said to the helper. */
export type StartReading = (
  input: Readable,
  onEvent: (event: unknown, pid: number | undefined) => void,
) => Readable;

/** @param start begins to read the file at `path` */
export async function openContent(
  path: string,
  start: StartReading,
  handed: HandedFiles,
  signal: AbortSignal | undefined,
): Promise<HostContent> {
  const head = Promise.withResolvers<
    Pick<HostContent, "entry" | "start" | "length"> & { taking: Promise<HandedFile | undefined> | undefined }
  >();
  const input = new PassThrough();
  const sent = start(input, (event, pid) => {
    const { fd, ...rest } = readContentHead(event);
    head.resolve({
      ...rest,
      taking: fd === undefined || pid === undefined ? undefined : handed.take(pid, fd),
    });
  });
  // A failure before the first byte is the head's; who never reads must not be told of it twice.
  sent.once("error", (error) => head.reject(error));
  const { taking, ...found } = await head.promise;
  const file = await taking;
  if (file === undefined) {
    input.end();
    return {
      ...found,
      bytes: sent as AsyncIterable<Buffer>,
      [Symbol.asyncDispose]: () => {
        sent.destroy();
        return Promise.resolve();
      },
    };
  }
  input.end(taken);
  return {
    ...found,
    bytes: piecesOf(path, file, found, signal),
    [Symbol.asyncDispose]: () => file[Symbol.asyncDispose](),
  };
}

async function* piecesOf(
  path: string,
  file: HandedFile,
  { start, length }: { start: number; length: number },
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  let left = length;
  for await (const piece of readPieces(file, { offset: start, length })) {
    signal?.throwIfAborted();
    left -= piece.length;
    yield piece;
  }
  if (left > 0) throw toSvcError({ code: "WRONG_TYPE", message: "became shorter while it was read" }, path);
}
