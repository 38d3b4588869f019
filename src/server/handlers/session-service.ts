/** SessionService: one domain call per method. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { SessionService } from "../../../gen/svc/v1/session_pb.ts";
import { invalidField, notFound, SvcError } from "../../errors.ts";
import { sessionCookie, splitToken } from "../../lib/session-cookie.ts";
import { noteChangedNothing, userOf } from "../rpc/user-context.ts";
import type { TokenAuthority } from "../../access/tokens/token-authority.ts";

const defaultTtlSecs = 43_200;

export interface SessionServiceOptions {
  readonly tokens: TokenAuthority;
  /** The page's URL for a browser on this host; undefined without a TCP address. */
  readonly pageAddress: () => string | undefined;
  /** Empty for a uid without a name. */
  readonly userName: (uid: number) => Promise<string>;
}

export function createSessionService({
  tokens,
  pageAddress,
  userName,
}: SessionServiceOptions): ServiceImpl<typeof SessionService> {
  return {
    issueSessionCode: ({ ttlSecs = defaultTtlSecs }, context) => {
      const { kind, uid, root, ownerUid } = userOf(context);
      if (kind === "local")
        throw notPossible("the web page needs a daemon, and none responds here; start one: svc daemon");
      const page = pageAddress();
      if (page === undefined)
        throw notPossible(
          "the page is not available: the daemon does not listen on its TCP address; see: svc status",
        );
      const { token: code, expiresAtMs } = tokens.issueSessionCode({ uid, root, ownerUid }, ttlSecs);
      return { code, expiresAt: timestampFromMs(expiresAtMs), page };
    },

    openSession: async ({ cookie, currentUid }, context) => {
      const { tokenDigest = "", uid } = userOf(context);
      const { requestHeader, responseHeader } = context;
      const user = await userName(uid);
      if (currentUid !== undefined && currentUid !== uid) {
        noteChangedNothing(context);
        return { uid, user };
      }
      const origin = cookie ? originOf(context) : "";
      const { token, expiresAtMs } = tokens.openSession(
        tokenDigest,
        requestHeader.get("user-agent") ?? undefined,
      );
      const opened = { uid, user, expiresAt: timestampFromMs(expiresAtMs) };
      if (!cookie) return { ...opened, token };
      const { key, rest } = splitToken(token);
      responseHeader.append("set-cookie", sessionCookie(origin, rest));
      return { ...opened, key };
    },

    listSessions: (_request, context) => {
      const { uid, tokenDigest } = userOf(context);
      return {
        sessions: tokens.sessionsOf(uid).map(({ id, browser, createdAtMs, expiresAtMs }) => ({
          ...{ id, browser },
          createdAt: timestampFromMs(createdAtMs),
          expiresAt: timestampFromMs(expiresAtMs),
          current: id === tokenDigest,
        })),
      };
    },

    endSession: ({ id }, context) => {
      if (tokens.endSessions({ uid: userOf(context).uid, name: id }) === 0) throw notFound("session", id);
      return {};
    },

    endSessions: (_request, context) => {
      const { kind, uid, tokenDigest: name = "" } = userOf(context);
      const { requestHeader, responseHeader } = context;
      const origin = kind === "session" ? requestHeader.get("origin") : null;
      if (origin !== null && URL.canParse(origin))
        responseHeader.append("set-cookie", sessionCookie(origin, undefined));
      const ended = tokens.endSessions(kind === "session" ? { uid, name } : { uid });
      if (ended === 0) noteChangedNothing(context);
      return { ended };
    },
  };
}

/** The transport has already compared it with the request's host. */
function originOf({ requestHeader }: HandlerContext): string {
  const origin = requestHeader.get("origin");
  if (origin === null || !URL.canParse(origin))
    throw invalidField("cookie", "needs the `Origin` header of a page");
  return origin;
}

function notPossible(message: string): SvcError {
  return new SvcError("not_possible", message);
}
