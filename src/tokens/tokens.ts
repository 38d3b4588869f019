/** What the front door asks of tokens (S 2.9, 5.1). */

/** As whom a session of the page acts. */
export interface TokenUser {
  readonly uid: number;
  readonly root: boolean;
  /** Who owns what it creates. */
  readonly ownerUid: number;
}

export interface AuthenticatedToken {
  /**
   * `replaced`: the primary token that a rotation in its grace window replaced. `session`: of the page; `code`: what opens one.
   */
  readonly kind: "primary" | "replaced" | "access" | "session" | "code";
  /** First 12 hex digits of the token's SHA-256: names it in logs, opens nothing. */
  readonly digest: string;
  /** Of a session and of a code; every other token acts as the daemon's own user. */
  readonly user?: TokenUser;
  /** Aborts when the token expires or is revoked, so that its calls end with it (T 10). */
  readonly ended?: AbortSignal;
}

export interface Tokens {
  /** Recognises a presented bearer token, in constant time; `null` for any other string. */
  authenticate(presented: string): AuthenticatedToken | null;
}
