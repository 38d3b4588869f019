/** The tokens as the request gateway uses them. */

/** The user that a session of the page acts as. */
export interface TokenUser {
  readonly uid: number;
  readonly root: boolean;
  /** Owner of what the session creates. */
  readonly ownerUid: number;
}

export interface AuthenticatedToken {
  /**
   * `replaced`: a former primary token in its grace period. `session`: a session of the page. `code`: opens a session.
   */
  readonly kind: "primary" | "replaced" | "access" | "session" | "code";
  /** First 12 hex digits of the token's SHA-256, which identify it in logs. */
  readonly digest: string;
  /** Set for a session and a code; every other token acts as the daemon's own user. */
  readonly user?: TokenUser;
  /** Aborts when the token expires or is revoked, which ends its calls. */
  readonly ended?: AbortSignal;
}

export interface Tokens {
  /** Recognizes a presented token, in constant time; `null` for any other string. */
  authenticate(presented: string): AuthenticatedToken | null;
  /** The message for a token that is not recognized. Default: only that it is not valid. */
  explainUnknown?(presented: string): string | undefined;
}
