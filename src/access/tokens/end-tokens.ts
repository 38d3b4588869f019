import type { LiveToken } from "./live-token.ts";

/**
 * Ends the tokens that match, and removes them from `tokens`.
 * @param message the reason, as one sentence for clients whose calls end
 * @returns how many ended
 */
export function endTokens<T extends { readonly live: LiveToken }>(
  tokens: Map<string, T>,
  matches: (token: T) => boolean,
  message: string,
): number {
  let count = 0;
  for (const [key, token] of tokens) {
    if (!matches(token)) continue;
    tokens.delete(key);
    token.live.end(message);
    count++;
  }
  return count;
}
