/** All tokens of the daemon: recognizes presented tokens, and issues, rotates and revokes tokens. */
import type { Clock } from "../../lib/clock.ts";
import type { Store } from "../../store/store.ts";
import { AccessTokens, type AccessGrant } from "./access-tokens.ts";
import type { Log } from "../../lib/log.ts";
import { PrimaryToken, type Rotation } from "./primary-token.ts";
import { expiredCode, SessionTokens, type OpenSession, type SessionGrant } from "./session-tokens.ts";
import { isToken, tokenDigest } from "./token-digest.ts";
import type { AuthenticatedToken, Tokens, TokenUser } from "./tokens.ts";

/** Longer strings are not tokens, so they are not hashed. */
const maxPresentedLength = 256;
/** Well below one second, the promised time in which calls end with their token. */
const sweepIntervalMs = 250;

export interface TokenAuthorityOptions {
  /** `api.token`. */
  readonly file: string;
  /** The daemon's own uid. */
  readonly selfUid: number;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
}

export interface TokensStatus {
  /** Number of valid access tokens. */
  readonly accessTokens: number;
  /** Number of open sessions of all users. */
  readonly sessions: number;
  /** When the replaced token ends, unix milliseconds; `undefined` while no window is open. */
  readonly graceUntilMs: number | undefined;
  /** First 12 hex digits of the primary token's SHA-256. */
  readonly primaryDigest: string;
}

export class TokenAuthority implements Tokens, Disposable {
  readonly #clock: Clock;
  readonly #log: Pick<Log, "info" | "warn">;
  readonly #primary: PrimaryToken;
  readonly #access: AccessTokens;
  readonly #sessions: SessionTokens;
  /** Runs only while a token or session can expire. */
  #sweeping: Disposable | undefined;
  #revokedByRotation = 0;

  constructor(options: TokenAuthorityOptions) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#access = new AccessTokens(options.clock);
    this.#sessions = new SessionTokens(options.clock);
    this.#primary = new PrimaryToken({
      ...options,
      onRotated: () => {
        this.#revokedByRotation = this.#access.revokeAll();
        this.#sessions.revokeAll();
        this.#watch();
      },
      onEnded: (name) => this.#access.revokeIssuedBy(name),
    });
  }

  /** Must be awaited before any other method. @throws as `openTokenFile` */
  async open(): Promise<void> {
    await this.#primary.open();
    this.#watch();
  }

  authenticate(presented: string): AuthenticatedToken | null {
    if (presented.length > maxPresentedLength) return null;
    const digest = tokenDigest(presented);
    const primary = this.#primary.find(digest);
    const access = this.#access.find(digest);
    const session = this.#sessions.find(digest);
    const code = this.#sessions.findCode(digest);
    if (session !== undefined) {
      const { live, user } = session;
      return { kind: "session", digest: live.name, ended: live.ended, user };
    }
    if (code !== undefined) return { kind: "code", digest: code.name, user: code.user };
    const live = primary?.live ?? access;
    if (live === undefined) return null;
    return { kind: primary?.kind ?? "access", digest: live.name, ended: live.ended };
  }

  explainUnknown(presented: string): string | undefined {
    return isToken("code", presented) ? expiredCode : undefined;
  }

  status(): TokensStatus {
    return {
      accessTokens: this.#access.size,
      sessions: this.#sessions.size,
      graceUntilMs: this.#primary.graceUntilMs,
      primaryDigest: this.#primary.name,
    };
  }

  /**
   * @param label purpose of the token, shown in the log
   * @param caller name of the presented token; without one the caller counts as the primary token
   * @throws SvcError `resource_exhausted` (`too_many`)
   */
  issueAccess(ttlSecs: number, label: string, caller: string | undefined): AccessGrant {
    const issuer = caller ?? this.#primary.name;
    const grant = this.#access.issue(ttlSecs, issuer);
    this.#watch();
    this.#log.info({ tokenDigest: grant.name, issuer, label, ttlSecs }, "an access token was issued");
    return grant;
  }

  /** Ends all access tokens. @returns how many ended */
  revokeAccess(): number {
    const revoked = this.#access.revokeAll();
    this.#log.info({ revoked }, "the access tokens were revoked");
    return revoked;
  }

  /** Like {@link SessionTokens.issueCode}. */
  issueSessionCode(user: TokenUser, ttlSecs: number): SessionGrant {
    return this.#sessions.issueCode(user, ttlSecs);
  }

  /** Like {@link SessionTokens.open}. */
  openSession(code: string, browser?: string): SessionGrant {
    const grant = this.#sessions.open(code, browser);
    this.#watch();
    this.#log.info({ tokenDigest: grant.name, code }, "a session of the page was opened");
    return grant;
  }

  /** Like {@link SessionTokens.listOf}. */
  sessionsOf(uid: number): OpenSession[] {
    return this.#sessions.listOf(uid);
  }

  /** Ends one session of a user, or all of them. @returns how many ended */
  endSessions({ uid, name }: { readonly uid: number; readonly name?: string }): number {
    return name === undefined ? this.#sessions.endOf(uid) : this.#sessions.end(name, uid);
  }

  /** Like {@link PrimaryToken.rotate}; all access tokens and sessions end with it. */
  async rotate(caller: string | undefined, graceSecs: number): Promise<Rotation & { revoked: number }> {
    const rotation = await this.#primary.rotate(caller, graceSecs);
    return { ...rotation, revoked: this.#revokedByRotation };
  }

  /** Like {@link PrimaryToken.commit}. */
  commit(caller: string | undefined): Promise<boolean> {
    return this.#primary.commit(caller);
  }

  [Symbol.dispose](): void {
    this.#sweeping?.[Symbol.dispose]();
    this.#primary[Symbol.dispose]();
  }

  #watch(): void {
    this.#sweeping ??= this.#clock.setTimer(sweepIntervalMs, () => {
      this.#sweeping = undefined;
      const [access, window] = [this.#access.sweep(), this.#primary.sweep()];
      if (this.#sessions.sweep() || access || window) this.#watch();
    });
  }
}
