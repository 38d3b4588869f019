/**
 * Sessions of the page. A caller that the kernel identified on the socket gets a one-time code; the page trades the code for a
 * token that acts as that user, so that no token ever appears in an address. Everything is kept only in the memory of this process.
 */
import { SvcError } from "../../errors.ts";
import type { Clock } from "../../lib/clock.ts";
import { endTokens, LiveToken, Lifetime } from "./live-token.ts";
import { mintToken, shortDigest, tokenDigest } from "./token-digest.ts";
import type { TokenUser } from "./tokens.ts";

const codeLifetimeMs = 30_000;
const maxBrowserLength = 200;
export const expiredCode = "this sign-in link has expired or was already used; get another with: svc web";
/** Maximum unused codes and open sessions of one user. */
export const maxCodesPerUid = 100;
export const maxSessionsPerUid = 20;

export interface SessionGrant {
  /** The secret, shown only once. */
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
  readonly createdAtMs: number;
  readonly browser: string;
}

/** An open session, as its user sees it. */
export interface OpenSession {
  /** The first 12 hex digits of the digest of the session's token. */
  readonly id: string;
  /** Unix milliseconds. */
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  /** `User-Agent` of the browser. */
  readonly browser: string;
}

export class SessionTokens {
  readonly #clock: Clock;
  /** By digest in hex, as the sessions are. */
  readonly #codes = new Map<string, Code>();
  readonly #sessions = new Map<string, Session>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param ttlSecs lifetime of the session that the code opens
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

  /** The user and the name of a code, without using it. */
  findCode(digest: Buffer): { user: TokenUser; name: string } | undefined {
    const code = this.#codes.get(keyOf(digest));
    return code === undefined || code.life.isOver ? undefined : code;
  }

  /**
   * Opens a session with a code. A code opens one session, even if several clients use it at once.
   * @param name of the code, as {@link findCode} returns it
   * @param browser the `User-Agent` that opens the session
   * @throws SvcError `unauthenticated` if it was used in the meantime; `too_many`, in which case it stays unused
   */
  open(name: string, browser = ""): SessionGrant & { name: string } {
    this.sweep();
    const [key, code] = [...this.#codes].find(([, code]) => code.name === name) ?? [];
    if (key === undefined || code === undefined) throw new SvcError("unauthenticated", expiredCode);
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
    this.#sessions.set(keyOf(live.digest), {
      ...{ user, life, live },
      createdAtMs: this.#clock.nowMs(),
      browser: browser.slice(0, maxBrowserLength),
    });
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

  /** A user's open sessions, newest first. */
  listOf(uid: number): OpenSession[] {
    this.sweep();
    return [...this.#sessions.values()]
      .filter(({ user }) => user.uid === uid)
      .map(({ live, life, createdAtMs, browser }) => ({
        ...{ id: live.name, createdAtMs, browser },
        expiresAtMs: life.endsAtMs,
      }))
      .toReversed();
  }

  /**
   * Ends a user's session by the name of its token. The token is invalid at once; calls that run with it end one turn of the
   * event loop later, so that the call that asks for this gets its response.
   * @returns how many sessions ended
   */
  end(name: string, uid: number): number {
    const found = [...this.#sessions].find(([, { live, user }]) => live.name === name && user.uid === uid);
    if (found === undefined) return 0;
    const [key, { live }] = found;
    this.#sessions.delete(key);
    setImmediate(() => live.end("the session was ended"));
    return 1;
  }

  /** Ends a user's sessions and codes. @returns how many sessions ended */
  endOf(uid: number): number {
    for (const [key, { user }] of this.#codes) if (user.uid === uid) this.#codes.delete(key);
    return endTokens(this.#sessions, ({ user }) => user.uid === uid, "the user's sessions were ended");
  }

  /** Ends all sessions and codes. @returns how many sessions ended */
  revokeAll(): number {
    this.#codes.clear();
    return endTokens(
      this.#sessions,
      () => true,
      "the primary token was rotated, which ends the session; open another: svc web",
    );
  }

  /** Removes expired sessions and codes. @returns whether any session is left */
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
