/** Short-lived access tokens, minted with the primary token. They exist only in the memory of this process. */
import { SvcError } from "../../errors.ts";
import type { Clock } from "../../lib/clock.ts";
import { endTokens, LiveToken, Lifetime } from "./live-token.ts";
import { mintToken, tokenDigest } from "./token-digest.ts";

/** Maximum number of valid tokens. */
export const maxAccessTokens = 1_000;

export interface AccessGrant {
  /** The secret, shown only once. */
  readonly token: string;
  /** First 12 hex digits of its SHA-256. */
  readonly name: string;
  /** Unix milliseconds. */
  readonly expiresAtMs: number;
}

interface AccessToken {
  readonly live: LiveToken;
  readonly life: Lifetime;
  /** Name of the primary token that minted it. */
  readonly issuer: string;
}

export class AccessTokens {
  readonly #clock: Clock;
  /** By digest in hex. */
  readonly #tokens = new Map<string, AccessToken>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param issuer name of the primary token that mints it
   * @throws SvcError `resource_exhausted` if the maximum number of tokens is valid
   */
  issue(ttlSecs: number, issuer: string): AccessGrant {
    this.sweep();
    if (this.#tokens.size >= maxAccessTokens) {
      throw new SvcError(
        "too_many",
        `${maxAccessTokens} access tokens are live; let some expire, or end all with: svc token revoke`,
      );
    }
    const token = mintToken("access");
    const live = new LiveToken(tokenDigest(token));
    const life = new Lifetime(this.#clock, ttlSecs * 1000);
    this.#tokens.set(live.digest.toString("hex"), { live, life, issuer });
    return { token, name: live.name, expiresAtMs: life.endsAtMs };
  }

  find(digest: Buffer): LiveToken | undefined {
    const token = this.#tokens.get(digest.toString("hex"));
    return token === undefined || token.life.isOver ? undefined : token.live;
  }

  get size(): number {
    this.sweep();
    return this.#tokens.size;
  }

  /** @returns how many ended */
  revokeAll(): number {
    return this.#revoke(() => true);
  }

  /** An access token does not outlive the primary token that minted it. */
  revokeIssuedBy(issuer: string): number {
    return this.#revoke((token) => token.issuer === issuer);
  }

  /** Ends expired tokens. @returns whether any are left */
  sweep(): boolean {
    endTokens(this.#tokens, ({ life }) => life.isOver, "the access token has expired; issue another");
    return this.#tokens.size > 0;
  }

  #revoke(matches: (token: AccessToken) => boolean): number {
    this.sweep();
    return endTokens(this.#tokens, matches, "the access token was revoked; issue another");
  }
}
