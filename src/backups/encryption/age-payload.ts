/**
 * The payload of an age file (age-encryption.org/v1, "Payload"): chunks of 64 KiB, each encrypted separately.
 * The nonce is the chunk's number and a flag for the last chunk, so any chunk can be read separately.
 */
import { createCipheriv, createDecipheriv, hkdfSync } from "node:crypto";

const cipher = "chacha20-poly1305";
export const chunkBytes = 64 << 10;
const tagBytes = 16;
/** Size of a full encrypted chunk. */
export const sealedChunkBytes = chunkBytes + tagBytes;
/** The nonce between the header and the first chunk. */
export const nonceBytes = 16;

/** Consecutive chunks of a payload. */
export interface Chunks {
  /** Number of the first chunk. */
  first: number;
  /** Whether the last of them is the last of the payload. */
  isEnd: boolean;
  bytes: Uint8Array<ArrayBuffer>;
}

export function payloadKey(fileKey: Uint8Array, nonce: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync("sha256", fileKey, nonce, "payload", 32));
}

/** @param sizeBytes size of the plain text, at least 1 */
export function sealedBytes(sizeBytes: number): number {
  return sizeBytes + Math.ceil(sizeBytes / chunkBytes) * tagBytes;
}

/** Undefined if no payload has this length. */
export function openedBytes(sealed: number): number | undefined {
  const chunks = Math.ceil(sealed / sealedChunkBytes);
  const lastBytes = sealed - (chunks - 1) * sealedChunkBytes;
  return sealed > 0 && lastBytes > tagBytes ? sealed - chunks * tagBytes : undefined;
}

/** All chunks except the last are full. */
export function encryptChunks(key: Uint8Array, { first, isEnd, bytes }: Chunks): Uint8Array<ArrayBuffer> {
  const count = Math.ceil(bytes.length / chunkBytes);
  const sealed = new Uint8Array(sealedBytes(bytes.length));
  for (let at = 0; at < count; at++) {
    const chunk = bytes.subarray(at * chunkBytes, (at + 1) * chunkBytes);
    const nonce = nonceOf(first + at, isEnd && at === count - 1);
    const sealing = createCipheriv(cipher, key, nonce, { authTagLength: tagBytes });
    const offset = at * sealedChunkBytes;
    sealed.set(sealing.update(chunk), offset);
    sealing.final();
    sealed.set(sealing.getAuthTag(), offset + chunk.length);
  }
  return sealed;
}

/** Undefined if they are not authentic. */
export function decryptChunks(key: Uint8Array, { first, isEnd, bytes }: Chunks): Uint8Array | undefined {
  const count = Math.ceil(bytes.length / sealedChunkBytes);
  const opened = new Uint8Array(openedBytes(bytes.length) ?? 0);
  for (let at = 0; at < count; at++) {
    const sealed = bytes.subarray(at * sealedChunkBytes, (at + 1) * sealedChunkBytes);
    if (sealed.length <= tagBytes) return undefined;
    const nonce = nonceOf(first + at, isEnd && at === count - 1);
    const opening = createDecipheriv(cipher, key, nonce, { authTagLength: tagBytes });
    opening.setAuthTag(sealed.subarray(-tagBytes));
    const chunk = opening.update(sealed.subarray(0, -tagBytes));
    try {
      opening.final();
    } catch {
      return undefined;
    }
    opened.set(chunk, at * chunkBytes);
  }
  return opened;
}

/** Eleven bytes for the number, big-endian, and one for the last-chunk flag. */
function nonceOf(number: number, isLast: boolean): Uint8Array {
  const nonce = Buffer.alloc(12);
  nonce.writeUIntBE(number, 5, 6);
  nonce[11] = isLast ? 1 : 0;
  return nonce;
}
