/** Random token strings, and their digests. Only digests are stored and compared. */
import { hash, randomBytes, timingSafeEqual } from "node:crypto";

const prefixes = {
  primary: "svcp_",
  access: "svca_",
  console: "svcc_",
  session: "svcs_",
  code: "svco_",
} as const;
export type TokenKind = keyof typeof prefixes;

/** Characters of 32 bytes in base64url. */
const secretLength = 43;

/** A new token: 256 random bits of the system, in base64url, with the prefix of its kind. */
export function mintToken(kind: TokenKind): string {
  return prefixes[kind] + randomBytes(32).toString("base64url");
}

/** Whether `text` has the form of a token of that kind. */
export function isToken(kind: TokenKind, text: string): boolean {
  const prefix = prefixes[kind];
  return (
    text.startsWith(prefix) && new RegExp(`^[A-Za-z0-9_-]{${secretLength}}$`).test(text.slice(prefix.length))
  );
}

/** SHA-256. */
export function tokenDigest(token: string): Buffer {
  return hash("sha256", token, "buffer");
}

/** Compares digests in constant time. */
export function isSameDigest(one: Buffer, other: Buffer): boolean {
  return timingSafeEqual(one, other);
}

/** The name of a token in logs and responses: the first 12 hex digits of its digest. */
export function shortDigest(digest: Buffer): string {
  return digest.toString("hex", 0, 6);
}
