/** Contents of a directory's files in the order in which they are requested, read by one process of the owner. */
import { PassThrough, type Readable } from "node:stream";
import type { UserHelper } from "../../../run-as/user-helper.ts";
import { unreadableContext } from "../context-entries.ts";
import { archiveFiles } from "../file-archive.ts";

export interface FileRead {
  readonly name: string;
  /** Must be read to its end before the next file. */
  readonly content: AsyncIterable<Buffer>;
}

const blockBytes = 512;
const regular = new Set(["0", "\0"]);
const longName = "L";
const directory = "5";

/**
 * @param names relative to `cwd`; one character per byte
 * @throws SvcError `build_failed` for a file that is missing or not regular any more
 */
export async function* readRequested(
  userHelper: Pick<UserHelper, "runCommand">,
  cwd: string,
  names: AsyncIterable<string>,
  limits: { timeoutMs: number; signal?: AbortSignal },
): AsyncGenerator<FileRead, void> {
  const archive = new PassThrough();
  archive.on("error", () => undefined);
  archiveFiles(archive, {
    ...{ userHelper, cwd, names: nameBytes(names), ...limits },
    // Records of one block: the engine requests more only after it has received a whole file.
    tarOptions: ["--format=gnu", "--blocking-factor=1", "--hard-dereference"],
  });
  try {
    yield* readEntries(archive);
  } finally {
    archive.destroy();
  }
}

async function* nameBytes(names: AsyncIterable<string>): AsyncGenerator<Buffer, void> {
  // tar writes a block only when the next one needs the space: the entry of the directory after each file causes that.
  for await (const name of names) yield Buffer.from(`./${name}\0.\0`, "latin1");
}

async function* readEntries(archive: Readable): AsyncGenerator<FileRead, void> {
  const bytes = new ByteQueue(archive);
  let name: string | undefined;
  for (;;) {
    const header = await bytes.take(blockBytes);
    // Zeros end the archive.
    if (header === undefined || header[0] === 0) break;
    const sizeBytes = Number.parseInt(header.toString("latin1", 124, 136), 8);
    const padding = (blockBytes - (sizeBytes % blockBytes)) % blockBytes;
    const type = header.toString("latin1", 156, 157);
    if (type === longName) {
      name = textOf((await bytes.take(sizeBytes + padding)) ?? Buffer.alloc(0));
      continue;
    }
    const shown = (name ?? textOf(header.subarray(0, 100))).replace(/^\.\//, "");
    name = undefined;
    if (type === directory && shown === "") continue;
    if (!regular.has(type)) throw unreadableContext(`"${shown}" is not a regular file any more`);
    yield { name: shown, content: bytes.pieces(sizeBytes) };
    await bytes.take(padding);
  }
  // tar writes no more, and its status decides whether that was all.
  for await (const _ of archive as AsyncIterable<Buffer>);
}

function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString("latin1", 0, end === -1 ? bytes.length : end);
}

/** Takes exact numbers of bytes from a stream. */
class ByteQueue {
  readonly #chunks: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(stream: Readable) {
    this.#chunks = stream.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
  }

  /** `undefined` at the end of the stream. */
  async take(sizeBytes: number): Promise<Buffer | undefined> {
    const pieces: Buffer[] = [];
    for await (const piece of this.pieces(sizeBytes)) pieces.push(piece);
    const taken = Buffer.concat(pieces);
    return taken.length < sizeBytes ? undefined : taken;
  }

  async *pieces(sizeBytes: number): AsyncGenerator<Buffer, void> {
    for (let leftBytes = sizeBytes; leftBytes > 0;) {
      if (this.#rest.length === 0) {
        const next = await this.#chunks.next();
        if (next.done === true) return;
        this.#rest = next.value;
      }
      const piece = this.#rest.subarray(0, leftBytes);
      this.#rest = this.#rest.subarray(piece.length);
      leftBytes -= piece.length;
      yield piece;
    }
  }
}
