/**
 * The header of an age file: who can open it. Made and read by age's own package; its payload is worked on by Node's cipher,
 * which takes a fifth of the time.
 */
import { randomBytes } from "node:crypto";
import { Decrypter, Encrypter } from "age-encryption";
import { nonceBytes, payloadKey } from "./age-payload.ts";

/** Of the payload of a file, with what comes before it. */
export interface SealedHeader {
  /** The header and the nonce. */
  head: Uint8Array;
  key: Uint8Array;
}

/** What the package writes after the header: a nonce, and a chunk without content. */
const emptyPayloadBytes = nonceBytes + 16;

/** @throws Error when one is no recipient */
export async function sealHeader(recipients: readonly string[]): Promise<SealedHeader> {
  const encrypter = new Encrypter();
  for (const recipient of recipients) encrypter.addRecipient(recipient);
  let fileKey: Uint8Array = new Uint8Array();
  // The package has no other way to make a header alone: one who adds nothing to it, and hears the key.
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
 * What goes wrong is a word: the package's own messages quote what they do not like, secrets too.
 * @param head the header and the nonce
 */
export async function openHeader(head: Uint8Array, identities: readonly string[]): Promise<OpenedHeader> {
  const decrypter = new Decrypter();
  try {
    for (const identity of identities) decrypter.addIdentity(identity);
  } catch {
    return { why: "bad_identity" };
  }
  // It is asked last, when the file is for none of them.
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
