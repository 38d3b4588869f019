/** A decrypted view of an encrypted archive. Reads decrypt only the chunks that they need. */
import type { StoredFile } from "../storages/storage.ts";
import { damaged } from "../archives/archive-footer.ts";
import type { Age, Opener } from "./age.ts";
import { chunkBytes, nonceBytes, openedBytes, sealedChunkBytes } from "./age-payload.ts";

/** First line of age files. */
export const ageVersionLine = "age-encryption.org/v1\n";
/** Bytes of the first read; enough for eighty recipients. */
const maxHeadBytes = 8 << 10;
/** Number of chunks per decryption. */
const chunksAtOnce = 8;

/**
 * Takes ownership of the stored file.
 * @throws SvcError `invalid_request` for an identity that cannot open it, `archive_damaged`
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
    if (sizeBytes === undefined) throw damaged("is truncated");
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

  /** Yields decrypted chunks with their positions. Reads ahead while decrypting. */
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
      // Awaited below, unless an earlier chunk fails.
      current.catch(() => undefined);
      if (before !== undefined) yield await before;
      before = current;
      number += count;
    }
    if (before !== undefined) yield await before;
    if (number < behind) throw damaged("is truncated");
  }
}

/** Regroups pieces into blocks of this size; the last may be shorter. Each block has separate memory. */
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
  if (headerEnd < 0 || headerEnd + 1 + nonceBytes > head.length) throw damaged("has a damaged age header");
  return head.subarray(0, headerEnd + 1 + nonceBytes);
}
