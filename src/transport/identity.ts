/** From what a connection and a request show to the caller's UserContext (S 5.1, 5.2, D10). */
import { SvcError, invalidField } from "../errors.ts";
import { shareName, type UserContext } from "../rpc/user-context.ts";
import type { AuthenticatedToken, Tokens } from "../tokens/tokens.ts";

/** Where a connection comes from, known at accept. */
export type Origin =
  { readonly kind: "tcp"; readonly address: string } | { readonly kind: "peer"; readonly uid: number };

/** The address of a connection over TCP. */
export function addressOf(origin: Origin | undefined): string | undefined {
  return origin?.kind === "tcp" ? origin.address : undefined;
}

type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;

export interface IdentityOptions {
  readonly mode: "system" | "user";
  readonly selfUid: number;
  readonly tokens: Tokens;
}

/** 2^32-1 means "no uid" to the kernel. */
const maxUid = 2 ** 32 - 2;

export class IdentityResolver {
  readonly #options: IdentityOptions;

  constructor(options: IdentityOptions) {
    this.#options = options;
  }

  /** Whether a peer may connect at all: in `user` mode only the daemon's own uid and root. */
  acceptsPeer(uid: number): boolean {
    return this.#options.mode === "system" || this.#isRoot(uid);
  }

  /** Whose share the token of a request is of; undefined for none, or an unknown one. */
  shareOf(headers: RequestHeaders): string | undefined {
    const presented = presentedToken(headers);
    const token = presented === undefined ? null : this.#options.tokens.authenticate(presented);
    return token === null ? undefined : shareName(this.#callerOf(token));
  }

  /**
   * The caller of one request.
   * @throws SvcError `unauthenticated` without a recognised token on TCP; `invalid_argument` for a root peer's sudo uid that is none
   */
  identify(origin: Origin, headers: RequestHeaders): UserContext {
    if (origin.kind === "tcp") return { ...this.#bearer(headers), address: origin.address };
    const { uid } = origin;
    const root = this.#isRoot(uid);
    // Attribution only, and root's word alone: nothing in a request makes anyone more than the kernel says.
    const sudoUid = root && uid === 0 ? headers["x-svc-sudo-uid"] : undefined;
    const ownerUid = sudoUid === undefined ? uid : parseSudoUid(sudoUid);
    return { uid, root, kind: "peer", ownerUid, peerUid: uid };
  }

  #isRoot(uid: number): boolean {
    const { mode, selfUid } = this.#options;
    return uid === 0 || (mode === "user" && uid === selfUid);
  }

  #bearer(headers: RequestHeaders): UserContext {
    const presented = presentedToken(headers);
    if (presented === undefined) {
      throw unauthenticated("send the token as `Authorization: Bearer TOKEN`");
    }
    const token = this.#options.tokens.authenticate(presented);
    if (token === null) throw unauthenticated("the token is not known here");
    return this.#callerOf(token);
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

function presentedToken({ authorization }: RequestHeaders): string | undefined {
  return typeof authorization === "string" ? /^bearer +(\S+) *$/i.exec(authorization)?.[1] : undefined;
}

function unauthenticated(message: string): SvcError {
  return new SvcError("unauthenticated", message);
}

/** Digits only: signs, blanks, other bases, exponents, lists and what wraps around to root are refused (T 3). */
function parseSudoUid(value: string | string[]): number {
  const uid = typeof value === "string" && /^(?:0|[1-9][0-9]{0,9})$/.test(value) ? Number(value) : -1;
  if (uid < 0 || uid > maxUid) {
    throw invalidField("X-Svc-Sudo-Uid", `must be one number from 0 to ${maxUid}`);
  }
  return uid;
}
