/** The primary token as the front door asks for it. */
import { isSameDigest, shortDigest, tokenDigest } from "./token-digest.ts";
import { openTokenFile } from "./token-file.ts";
import type { Tokens } from "./tokens.ts";

/** Longer strings are no tokens and are not worth hashing. */
const maxPresentedLength = 256;

/** Tokens that know the one in `file` alone; it is made when missing. @throws as {@link openTokenFile} */
export async function openPrimaryToken(file: string, selfUid: number): Promise<Tokens> {
  return createPrimaryTokens(await openTokenFile(file, selfUid));
}

/** Tokens that know one primary token. Only its digest is kept. */
export function createPrimaryTokens(primary: string): Tokens {
  const expected = tokenDigest(primary);
  const authenticated = { kind: "primary", digest: shortDigest(expected) } as const;
  return {
    authenticate(presented) {
      if (presented.length > maxPresentedLength) return null;
      return isSameDigest(tokenDigest(presented), expected) ? authenticated : null;
    },
  };
}
