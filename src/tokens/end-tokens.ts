import type { LiveToken } from "./live-token.ts";

/**
 * Ends those of `tokens` that are meant, and forgets them.
 * @param message why, as one sentence for those whose calls end
 * @returns how many there were
 */
export function endTokens<T extends { readonly live: LiveToken }>(
  tokens: Map<string, T>,
  isMeant: (token: T) => boolean,
  message: string,
): number {
  let count = 0;
  for (const [key, token] of tokens) {
    if (!isMeant(token)) continue;
    tokens.delete(key);
    token.live.end(message);
    count++;
  }
  return count;
}
