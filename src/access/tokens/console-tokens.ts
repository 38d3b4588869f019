/** Console tokens: each opens one console session of one app, once, within 30 seconds. */
import { SvcError } from "../../errors.ts";
import type { Clock } from "../../lib/clock.ts";
import type { IssueConsoleTokenRequestSession } from "../../../gen/svc/v1/values.ts";
import { Lifetime } from "./live-token.ts";
import { isToken, mintToken, tokenDigest } from "./token-digest.ts";

const lifetimeMs = 30_000;
/** Maximum unused tokens of one user; a console needs one. */
const maxPerUid = 100;

/** The caller that the token was issued to; the session acts as this caller. */
export interface ConsoleIssuer {
  readonly uid: number;
  /** Aborts when the caller's own token ends, which also ends the session. */
  readonly ended?: AbortSignal;
}

export interface ConsoleScope {
  readonly appId: string;
  readonly session: IssueConsoleTokenRequestSession;
}

interface ConsoleToken<Issuer> extends ConsoleScope {
  readonly issuer: Issuer;
  readonly life: Lifetime;
}

export class ConsoleTokens<Issuer extends ConsoleIssuer> {
  readonly #clock: Clock;
  /** By digest in hex. */
  readonly #tokens = new Map<string, ConsoleToken<Issuer>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The calling code must check that the issuer may see the app, here and again when the session opens.
   * @throws SvcError `resource_exhausted` if the user has too many unused tokens
   */
  issue({ appId, session }: ConsoleScope, issuer: Issuer): { token: string; expiresAtMs: number } {
    this.#sweep();
    const sameUid = [...this.#tokens.values()].filter((token) => token.issuer.uid === issuer.uid);
    if (sameUid.length >= maxPerUid) {
      throw new SvcError(
        "too_many",
        `${maxPerUid} console tokens wait to be used; use them, or try again in 30 seconds`,
      );
    }
    const token = mintToken("console");
    const life = new Lifetime(this.#clock, lifetimeMs);
    this.#tokens.set(keyOf(token), { appId, session, issuer, life });
    return { token, expiresAtMs: life.endsAtMs };
  }

  /**
   * Uses the token up. Of concurrent calls, one succeeds; a call for another app or session changes nothing.
   * @returns the caller that the token was issued to; `undefined` if it is not valid for this session
   */
  consume(presented: string, { appId, session }: ConsoleScope): Issuer | undefined {
    if (!isToken("console", presented)) return undefined;
    const key = keyOf(presented);
    const token = this.#tokens.get(key);
    if (token === undefined || isGone(token)) return undefined;
    if (token.appId !== appId || token.session !== session) return undefined;
    this.#tokens.delete(key);
    return token.issuer;
  }

  #sweep(): void {
    for (const [key, token] of this.#tokens) if (isGone(token)) this.#tokens.delete(key);
  }
}

function isGone({ life, issuer }: ConsoleToken<ConsoleIssuer>): boolean {
  return life.isOver || issuer.ended?.aborted === true;
}

function keyOf(token: string): string {
  return tokenDigest(token).toString("hex");
}
