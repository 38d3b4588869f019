import { setMaxListeners } from "node:events";
import { SvcError } from "../../errors.ts";
import { shortDigest } from "./token-digest.ts";
import type { Clock } from "../../lib/clock.ts";

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

/**
 * A time span that starts now. It ends as soon as either clock, wall or monotonic, has passed it: neither setting the clock back
 * nor suspending the host makes a token last longer.
 */
export class Lifetime {
  /** Unix milliseconds. */
  readonly endsAtMs: number;
  readonly #clock: Clock;
  readonly #endsAtMonotonicMs: number;

  constructor(clock: Clock, durationMs: number) {
    this.#clock = clock;
    this.endsAtMs = clock.nowMs() + durationMs;
    this.#endsAtMonotonicMs = clock.monotonicMs() + durationMs;
  }

  get isOver(): boolean {
    return this.#clock.nowMs() >= this.endsAtMs || this.#clock.monotonicMs() >= this.#endsAtMonotonicMs;
  }
}
