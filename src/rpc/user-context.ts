/** Who calls: stamped on every request by the transport, read by handlers (S 2.1, D10). */
import { createContextKey, type HandlerContext } from "@connectrpc/connect";

/**
 * How the caller was identified. `peer`: kernel credentials of a unix socket; `primary`, `replaced` (the primary
 * token that a rotation in its grace window replaced) and `access`: a bearer token; `local`: in this very process;
 * `session`: a bearer token of the page, and `code`: what opens one; `anonymous`: nobody, for the methods that are open to
 * everybody.
 */
export type IdentityKind =
  "peer" | "primary" | "replaced" | "access" | "session" | "code" | "local" | "anonymous";

export interface UserContext {
  /** The caller's user id; token callers but sessions act as the daemon's own user. */
  readonly uid: number;
  /** True: sees and manages everybody's applications. */
  readonly root: boolean;
  readonly kind: IdentityKind;
  /** Who owns what this call creates: the uid, or the user that a root peer names with `X-Svc-Sudo-Uid`. */
  readonly ownerUid: number;
  /** First 12 hex digits of the presented token's SHA-256. */
  readonly tokenDigest?: string;
  /** Where a caller over TCP came from; absent on the socket. */
  readonly address?: string | undefined;
  /** The uid that the kernel reports for a socket peer. */
  readonly peerUid?: number;
  /** Aborts when the identity ends before the call does: its token expired or was revoked. */
  readonly ended?: AbortSignal;
}

/** The caller of a public method: has no rights, and the uid that the kernel calls none. */
export const anonymous: UserContext = {
  uid: 2 ** 32 - 1,
  root: false,
  kind: "anonymous",
  ownerUid: 2 ** 32 - 1,
};

/** Under which the transport files the caller in Connect's context values. */
export const userContextKey = createContextKey<UserContext | undefined>(undefined, {
  description: "svc user",
});

/** Under which the transport files the request's id, which logs, audit records and internal errors carry. */
export const requestIdKey = createContextKey<string>("", { description: "svc request id" });

/**
 * The caller of a call.
 * @throws Error when no transport has identified one: a defect of ours, answered as an internal error.
 */
export function userOf(context: Pick<HandlerContext, "values">): UserContext {
  const user = context.values.get(userContextKey);
  if (user === undefined) throw new Error("the call carries no identity");
  return user;
}

/** By what name a caller's share of the daemon is known (D38): its uid, or its token; all sessions of one user are one. */
export function shareName({ kind, uid, tokenDigest }: UserContext): string {
  if (kind === "session" || kind === "code") return `sessions of uid ${uid}`;
  if (tokenDigest !== undefined) return `token ${tokenDigest}`;
  return kind === "peer" ? `uid ${uid}` : kind;
}
