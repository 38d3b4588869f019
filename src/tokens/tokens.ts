/** What the front door asks of tokens; the primary token answers it today, access tokens and rotation join behind it. */

export interface AuthenticatedToken {
  readonly kind: "primary" | "replaced" | "access";
  /** First 12 hex digits of the token's SHA-256: names it in logs, never opens anything. */
  readonly digest: string;
  /** Aborts when the token expires or is revoked, so that its streams end too. */
  readonly ended?: AbortSignal;
}

export interface Tokens {
  /** Recognises a presented bearer token in constant time; `null` for any other string. */
  authenticate(presented: string): AuthenticatedToken | null;
}
