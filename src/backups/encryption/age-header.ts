/**
 * The header of an age file, which contains its recipients. Written and read by the age package; the payload
 * uses Node's cipher, which takes a fifth of the time.
 */
import { randomBytes } from "node:crypto";
import { Decrypter, Encrypter } from "age-encryption";
import { nonceBytes, payloadKey } from "./age-payload.ts";

/** A file's payload key, and the bytes before the payload. */
export interface SealedHeader {
  /** The header and the nonce. */
  head: Uint8Array;
  key: Uint8Array;
}

/** The package writes a nonce and an empty chunk after the header. */
const emptyPayloadBytes = nonceBytes + 16;

/** @throws Error for an invalid recipient */
export async function sealHeader(recipients: readonly string[]): Promise<SealedHeader> {
  const encrypter = new Encrypter();
  for (const recipient of recipients) encrypter.addRecipient(recipient);
  let fileKey: Uint8Array = new Uint8Array();
  // The package cannot write only a header, so a recipient without content captures the key.
  encrypter.addRecipient({
    wrapFileKey: (key) => {
      fileKey = Uint8Array.from(key);
      return [];
    },
  });
  const file = await encrypter.encrypt(new Uint8Array());
  const header = file.subarray(0, -emptyPayloadBytes);
  const nonce = randomBytes(nonceBytes);
  return { head: Buffer.concat([header, nonce]), key: payloadKey(fileKey, nonce) };
}

export type OpenedHeader = { key: Uint8Array } | { why: "bad_identity" | "no_match" | "damaged" };

/**
 * Failures are enum values, because the package's messages quote their input, including secrets.
 * @param head the header and the nonce
 */
export async function openHeader(head: Uint8Array, identities: readonly string[]): Promise<OpenedHeader> {
  const decrypter = new Decrypter();
  try {
    for (const identity of identities) decrypter.addIdentity(identity);
  } catch {
    return { why: "bad_identity" };
  }
  // Called last, if no identity matches.
  const found = { isOthers: false };
  decrypter.addIdentity({
    unwrapFileKey: () => {
      found.isOthers = true;
      return null;
    },
  });
  const header = head.subarray(0, -nonceBytes);
  try {
    const fileKey = await decrypter.decryptHeader(header);
    return { key: payloadKey(fileKey, head.subarray(-nonceBytes)) };
  } catch {
    return { why: found.isOthers ? "no_match" : "damaged" };
  }
}
