/** An encrypted archive, read as if it were not: what is wanted of it costs the chunks that hold it, and no others. */
import type { StoredFile } from "../storages/storage.ts";
import { damaged } from "../archive-footer.ts";
import type { Age, Opener } from "./age.ts";
import { chunkBytes, nonceBytes, openedBytes, sealedChunkBytes } from "./age-payload.ts";

/** What each file of age begins with. */
export const ageVersionLine = "age-encryption.org/v1\n";
/** Read at once from the beginning. It has room for eighty recipients. */
const maxHeadBytes = 8 << 10;
/** Decrypted at once. */
const chunksAtOnce = 8;

/**
 * The stored file is the opened one's from now on.
 * @throws SvcError `invalid_request` for an identity that does not open it, `archive_damaged`
 */
export async function openEncrypted(
  file: StoredFile,
  opener: Opener,
  age: Age,
  signal?: AbortSignal,
): Promise<StoredFile> {
  try {
    const head = await headOf(file, signal);
    const key = await age.open(head, opener);
    const sizeBytes = openedBytes(file.sizeBytes - head.length);
    if (sizeBytes === undefined) throw damaged("is cut short");
    return new EncryptedFile({ file, key, payloadAt: head.length, sizeBytes, age });
  } catch (error) {
    await file[Symbol.asyncDispose]();
    throw error;
  }
}

interface OpenedFile {
  file: StoredFile;
  key: Uint8Array;
  payloadAt: number;
  sizeBytes: number;
  age: Age;
}

class EncryptedFile implements StoredFile {
  readonly sizeBytes: number;
  readonly #opened: OpenedFile;

  constructor(opened: OpenedFile) {
    this.sizeBytes = opened.sizeBytes;
    this.#opened = opened;
  }

  async *read(start: number, end: number, signal?: AbortSignal): AsyncGenerator<Buffer> {
    if (start >= end) return;
    const first = Math.floor(start / chunkBytes);
    const behind = Math.ceil(end / chunkBytes);
    for await (const { at, bytes } of this.#chunks(first, behind, signal))
      yield Buffer.from(bytes).subarray(Math.max(0, start - at), end - at);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#opened.file[Symbol.asyncDispose]();
  }

  /** What some chunks hold, and where that lies. The next ones are read while some are decrypted. */
  async *#chunks(
    first: number,
    behind: number,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<{ at: number; bytes: Uint8Array }> {
    const { file, key, payloadAt, sizeBytes, age } = this.#opened;
    const stream = age.stream();
    const last = Math.ceil(sizeBytes / chunkBytes);
    const from = payloadAt + first * sealedChunkBytes;
    const to = Math.min(payloadAt + behind * sealedChunkBytes, file.sizeBytes);
    const blockBytes = Math.min(chunksAtOnce * sealedChunkBytes, to - from);
    let before: Promise<{ at: number; bytes: Uint8Array }> | undefined;
    let number = first;
    for await (const bytes of inBlocks(file.read(from, to, signal), blockBytes)) {
      const [at, count] = [number * chunkBytes, Math.ceil(bytes.length / sealedChunkBytes)];
      const chunks = { first: number, isEnd: number + count >= last, bytes };
      const current = stream.decrypt(key, chunks).then((opened) => ({ at, bytes: opened }));
      // It is waited for below, unless what came before it is wrong.
      current.catch(() => undefined);
      if (before !== undefined) yield await before;
      before = current;
      number += count;
    }
    if (before !== undefined) yield await before;
    if (number < behind) throw damaged("is cut short");
  }
}

/** All of them so long, but for the last. Each has memory of its own. */
async function* inBlocks(pieces: AsyncIterable<Buffer>, bytes: number): AsyncGenerator<Buffer<ArrayBuffer>> {
  let block: Buffer<ArrayBuffer> | undefined;
  let filled = 0;
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length;) {
      block ??= Buffer.allocUnsafeSlow(bytes);
      const taken = piece.copy(block, filled, at);
      at += taken;
      filled += taken;
      if (filled < bytes) continue;
      yield block;
      [block, filled] = [undefined, 0];
    }
  }
  if (block !== undefined) yield block.subarray(0, filled);
}

/** The header and the nonce. */
async function headOf(file: StoredFile, signal: AbortSignal | undefined): Promise<Buffer> {
  const end = Math.min(maxHeadBytes, file.sizeBytes);
  const head = Buffer.concat(await Array.fromAsync(file.read(0, end, signal)));
  const macAt = head.indexOf("\n--- ");
  const headerEnd = macAt < 0 ? -1 : head.indexOf("\n", macAt + 1);
  if (headerEnd < 0 || headerEnd + 1 + nonceBytes > head.length) throw damaged("has a damaged header of age");
  return head.subarray(0, headerEnd + 1 + nonceBytes);
}
