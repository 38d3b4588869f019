import { setMaxListeners } from "node:events";
import { SvcError } from "../../errors.ts";
import { shortDigest } from "./token-digest.ts";

/** A valid token: its digest, and the signal that ends the calls made with it. */
export class LiveToken {
  /** SHA-256. */
  readonly digest: Buffer;
  /** The first 12 hex digits of the digest, which identify the token in logs. */
  readonly name: string;
  readonly #controller = new AbortController();

  constructor(digest: Buffer) {
    this.digest = digest;
    this.name = shortDigest(digest);
    // Every running call adds a listener.
    setMaxListeners(0, this.#controller.signal);
  }

  /** Aborts when the token is no longer valid. */
  get ended(): AbortSignal {
    return this.#controller.signal;
  }

  /** @param message the reason, as one sentence for clients whose calls end */
  end(message: string): void {
    this.#controller.abort(new SvcError("unauthenticated", message));
  }
}

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
