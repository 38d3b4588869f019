/** The caller of a request: set by the transport, read by handlers. */
import { createContextKey, type HandlerContext } from "@connectrpc/connect";
import { rootShare } from "../../lib/share-owner.ts";

/**
 * How the caller was identified. `peer`: kernel credentials of a unix socket; `primary`, `replaced` (the
 * primary token that a rotation in its grace window replaced) and `access`: a bearer token; `local`: in this
 * process; `session`: a bearer token of the page; `code`: a code that opens a session; `anonymous`: no
 * identity, for public methods.
 */
export type IdentityKind =
  "peer" | "primary" | "replaced" | "access" | "session" | "code" | "local" | "anonymous";

export interface UserContext {
  /** The caller's user ID; callers with tokens other than sessions act as the daemon's user. */
  readonly uid: number;
  /** True: sees and manages all users' apps. */
  readonly root: boolean;
  readonly kind: IdentityKind;
  /** The owner of objects that this call creates: the uid, or the user in `X-Svc-Sudo-Uid` of a root peer. */
  readonly ownerUid: number;
  /** First 12 hex digits of the presented token's SHA-256. */
  readonly tokenDigest?: string;
  /** The address of a TCP caller; absent on the socket. */
  readonly address?: string | undefined;
  /** The uid that the kernel reports for a socket peer. */
  readonly peerUid?: number;
  /** Aborts when the token expires or is revoked during the call. */
  readonly ended?: AbortSignal;
}

/** The caller of a public method: no rights, and the kernel's value for "no uid". */
export const anonymous: UserContext = {
  uid: 2 ** 32 - 1,
  root: false,
  kind: "anonymous",
  ownerUid: 2 ** 32 - 1,
};

/** Key of the caller in Connect's context values. */
export const userContextKey = createContextKey<UserContext | undefined>(undefined, {
  description: "svc user",
});

/** Key of the request ID, which logs, audit records and internal errors contain. */
export const requestIdKey = createContextKey<string>("", { description: "svc request id" });

const changedNothingKey = createContextKey<boolean>(false, { description: "svc call without effect" });

/** Marks a call as successful without any effect. Repeated calls of this kind become one audit record. */
export function noteChangedNothing({ values }: Pick<HandlerContext, "values">): void {
  values.set(changedNothingKey, true);
}

export function hasChangedNothing({ values }: Pick<HandlerContext, "values">): boolean {
  return values.get(changedNothingKey);
}

/**
 * The caller of a call.
 * @throws Error if no transport has identified the caller, which is a bug
 */
export function userOf(context: Pick<HandlerContext, "values">): UserContext {
  const user = context.values.get(userContextKey);
  if (user === undefined) throw new Error("the call carries no identity");
  return user;
}

/** The uid whose share of the daemon's limits a call uses. */
export function shareUid({ root, uid }: UserContext): number {
  return root ? rootShare : uid;
}

/**
 * The name of a caller's share of the daemon's limits: its uid, or its token. A session of the page counts for its user, except a
 * session of root, because root on the socket has no share.
 */
export function shareName({ kind, uid, tokenDigest }: UserContext): string {
  if (kind === "session" || kind === "code") return uid === 0 ? "sessions of root" : `uid ${uid}`;
  if (tokenDigest !== undefined) return `token ${tokenDigest}`;
  return kind === "peer" ? `uid ${uid}` : kind;
}
