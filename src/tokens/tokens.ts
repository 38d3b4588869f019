/** What the front door asks of tokens (S 2.9, 5.1). */

export interface AuthenticatedToken {
  /** `replaced`: the primary token that a rotation in its grace window replaced. */
  readonly kind: "primary" | "replaced" | "access";
  /** First 12 hex digits of the token's SHA-256: names it in logs, opens nothing. */
  readonly digest: string;
  /** Aborts when the token expires or is revoked, so that its calls end with it (T 10). */
  readonly ended?: AbortSignal;
}

export interface Tokens {
  /** Recognises a presented bearer token, in constant time; `null` for any other string. */
  authenticate(presented: string): AuthenticatedToken | null;
}
