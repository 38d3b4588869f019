/** Determines the caller's UserContext from the connection and the request. */
import { SvcError, invalidField } from "../../errors.ts";
import { joinTokens } from "../../lib/session-cookie.ts";
import type { RequestSource } from "./request-source.ts";
import { shareName, type UserContext } from "../rpc/user-context.ts";
import type { AuthenticatedToken, Tokens } from "../../access/tokens/tokens.ts";
import type { SubordinateUids } from "./subordinate-uids.ts";

type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface IdentityOptions {
  readonly mode: "system" | "user";
  readonly selfUid: number;
  readonly tokens: Tokens;
  readonly subordinateUids: Pick<SubordinateUids, "has">;
}

/** 2^32-1 means "no uid" to the kernel. */
const maxUid = 2 ** 32 - 2;

export class IdentityResolver {
  readonly #options: IdentityOptions;

  constructor(options: IdentityOptions) {
    this.#options = options;
  }

  /**
   * Whether a peer may connect at all: in `user` mode only the daemon's own uid and root, else every user of the host, but not under
   * a subordinate uid.
   */
  acceptsPeer(uid: number): boolean {
    const { mode, subordinateUids } = this.#options;
    return this.#isRoot(uid) || (mode === "system" && !subordinateUids.has(uid));
  }

  /** The share of a request's token; undefined without a token, and for an unknown one. */
  shareOf(source: RequestSource, headers: RequestHeaders): string | undefined {
    const token = this.#authenticate(presentedTokens(headers, source));
    return token === null ? undefined : shareName(this.#callerOf(token));
  }

  /**
   * The caller of one request.
   * @throws SvcError `unauthenticated` without a valid token on TCP; `invalid_request` for an invalid sudo
   * uid of a root peer
   */
  identify(source: RequestSource, headers: RequestHeaders): UserContext {
    const { origin } = source;
    if (origin.kind === "tcp") {
      return { ...this.#bearer(presentedTokens(headers, source)), address: origin.address };
    }
    const { uid } = origin;
    const root = this.#isRoot(uid);
    // Only for attribution, and only from root: no header extends the rights of the kernel-verified user.
    const sudoUid = root && uid === 0 ? headers["x-svc-sudo-uid"] : undefined;
    const ownerUid = sudoUid === undefined ? uid : parseSudoUid(sudoUid);
    return { uid, root, kind: "peer", ownerUid, peerUid: uid };
  }

  #isRoot(uid: number): boolean {
    const { mode, selfUid } = this.#options;
    return uid === 0 || (mode === "user" && uid === selfUid);
  }

  #bearer(presented: readonly string[]): UserContext {
    const [first] = presented;
    if (first === undefined) {
      throw unauthenticated("send the token as `Authorization: Bearer TOKEN`");
    }
    const token = this.#authenticate(presented);
    if (token === null) {
      const { tokens } = this.#options;
      throw unauthenticated(tokens.explainUnknown?.(first) ?? "the token is not valid here");
    }
    return this.#callerOf(token);
  }

  /** The first of the presented tokens that is valid. */
  #authenticate(presented: readonly string[]): AuthenticatedToken | null {
    for (const each of presented) {
      const token = this.#options.tokens.authenticate(each);
      if (token !== null) return token;
    }
    return null;
  }

  #callerOf({ kind, digest, ended, user }: AuthenticatedToken): UserContext {
    const { selfUid } = this.#options;
    return {
      ...(user ?? { uid: selfUid, root: true, ownerUid: selfUid }),
      kind,
      tokenDigest: digest,
      ...(ended === undefined ? {} : { ended }),
    };
  }
}

/** The bearer token, or the candidates for a page's session token. */
function presentedTokens(headers: RequestHeaders, source: RequestSource): string[] {
  const { authorization } = headers;
  if (typeof authorization !== "string") return [];
  const [, scheme = "", text = ""] = /^(bearer|session) +(\S+) *$/i.exec(authorization) ?? [];
  if (scheme.toLowerCase() === "session") return sessionTokens(text, headers, source);
  return text === "" ? [] : [text];
}

/**
 * A cookie counts only for the page itself: other sites cannot send the key, and browsers send the origin.
 */
function sessionTokens(key: string, headers: RequestHeaders, source: RequestSource): string[] {
  const site = headers["sec-fetch-site"] ?? "same-origin";
  if (site !== "same-origin") return [];
  return joinTokens(key, textOf(headers["cookie"]), source.forwardedHost ?? source.host);
}

function textOf(header: string | string[] | undefined): string | undefined {
  return typeof header === "string" ? header : undefined;
}

function unauthenticated(message: string): SvcError {
  return new SvcError("unauthenticated", message);
}

/**
 * Digits only: signs, spaces, other bases, exponents, lists, and numbers that wrap around to root are
 * rejected.
 */
function parseSudoUid(value: string | string[]): number {
  const uid = typeof value === "string" && /^(?:0|[1-9][0-9]{0,9})$/.test(value) ? Number(value) : -1;
  if (uid < 0 || uid > maxUid) {
    throw invalidField("X-Svc-Sudo-Uid", `must be one number from 0 to ${maxUid}`);
  }
  return uid;
}
