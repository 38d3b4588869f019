/**
 * Sessions of the page (decisions 42): whoever the kernel names on the socket gets a code of one use, and the page trades it
 * for a token that acts as that user, so that no token ever stands in an address. All of it in this process's memory alone.
 */
import { SvcError } from "../errors.ts";
import type { Clock } from "../lib/clock.ts";
import { endTokens } from "./end-tokens.ts";
import { Lifetime } from "./lifetime.ts";
import { LiveToken } from "./live-token.ts";
import { mintToken, shortDigest, tokenDigest } from "./token-digest.ts";
import type { TokenUser } from "./tokens.ts";

const codeLifetimeMs = 30_000;
/** Of one user: unused codes, and open sessions. */
export const maxCodesPerUid = 100;
export const maxSessionsPerUid = 20;

export interface SessionGrant {
  /** Shown this once. */
  readonly token: string;
  /** Unix milliseconds. */
  readonly expiresAtMs: number;
}

interface Code {
  readonly user: TokenUser;
  readonly life: Lifetime;
  readonly name: string;
  readonly ttlSecs: number;
}

interface Session {
  readonly user: TokenUser;
  readonly life: Lifetime;
  readonly live: LiveToken;
}

export class SessionTokens {
  readonly #clock: Clock;
  /** By the digest's hex, as are the sessions. */
  readonly #codes = new Map<string, Code>();
  readonly #sessions = new Map<string, Session>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param ttlSecs of the session that it opens
   * @throws SvcError `too_many`
   */
  issueCode(user: TokenUser, ttlSecs: number): SessionGrant {
    this.sweep();
    if (countOf(this.#codes, user.uid) >= maxCodesPerUid) {
      throw new SvcError(
        "too_many",
        `${maxCodesPerUid} codes wait to be used; use one, or try again in 30 seconds`,
      );
    }
    const token = mintToken("code");
    const digest = tokenDigest(token);
    const life = new Lifetime(this.#clock, codeLifetimeMs);
    this.#codes.set(keyOf(digest), { user, life, name: shortDigest(digest), ttlSecs });
    return { token, expiresAtMs: life.endsAtMs };
  }

  /** Whose code this is, and its name; it stays good for one use. */
  findCode(digest: Buffer): { user: TokenUser; name: string } | undefined {
    const code = this.#codes.get(keyOf(digest));
    return code === undefined || code.life.isOver ? undefined : code;
  }

  /**
   * Uses a code up: of any number of tries one succeeds.
   * @param name the code's, as {@link findCode} says it
   * @throws SvcError `unauthenticated` when it was used meanwhile, `too_many`, which leaves it unused
   */
  open(name: string): SessionGrant & { name: string } {
    this.sweep();
    const [key, code] = [...this.#codes].find(([, code]) => code.name === name) ?? [];
    if (key === undefined || code === undefined)
      throw new SvcError("unauthenticated", "the code was used or is over; get another: svc web");
    const { user, ttlSecs } = code;
    if (countOf(this.#sessions, user.uid) >= maxSessionsPerUid) {
      throw new SvcError(
        "too_many",
        `${maxSessionsPerUid} sessions are open; sign out of one, or end all with: svc web --end`,
      );
    }
    this.#codes.delete(key);
    const token = mintToken("session");
    const live = new LiveToken(tokenDigest(token));
    const life = new Lifetime(this.#clock, ttlSecs * 1000);
    this.#sessions.set(keyOf(live.digest), { user, life, live });
    return { token, name: live.name, expiresAtMs: life.endsAtMs };
  }

  find(digest: Buffer): { user: TokenUser; live: LiveToken } | undefined {
    const session = this.#sessions.get(keyOf(digest));
    return session === undefined || session.life.isOver ? undefined : session;
  }

  get size(): number {
    this.sweep();
    return this.#sessions.size;
  }

  /**
   * Ends the session whose token has this name: it is good for nothing from now on, and what runs with it ends a turn later, so
   * that the call which asks for this gets its answer.
   * @returns how many that were
   */
  end(name: string): number {
    const found = [...this.#sessions].find(([, { live }]) => live.name === name);
    if (found === undefined) return 0;
    const [key, { live }] = found;
    this.#sessions.delete(key);
    setImmediate(() => live.end("the session was ended"));
    return 1;
  }

  /** Ends a user's sessions and codes. @returns how many sessions there were */
  endOf(uid: number): number {
    for (const [key, { user }] of this.#codes) if (user.uid === uid) this.#codes.delete(key);
    return endTokens(this.#sessions, ({ user }) => user.uid === uid, "the user's sessions were ended");
  }

  /** Ends everything. @returns how many sessions there were */
  revokeAll(): number {
    this.#codes.clear();
    return endTokens(
      this.#sessions,
      () => true,
      "the primary token was rotated, which ends the session; open another: svc web",
    );
  }

  /** Ends what is over. @returns whether any session is left */
  sweep(): boolean {
    for (const [key, { life }] of this.#codes) if (life.isOver) this.#codes.delete(key);
    endTokens(this.#sessions, ({ life }) => life.isOver, "the session's time is over; open another: svc web");
    return this.#sessions.size > 0;
  }
}

function countOf(all: ReadonlyMap<string, Code | Session>, uid: number): number {
  return [...all.values()].filter(({ user }) => user.uid === uid).length;
}

function keyOf(digest: Buffer): string {
  return digest.toString("hex");
}
