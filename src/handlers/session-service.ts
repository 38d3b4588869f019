/** SessionService: one domain call per method. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { SessionService } from "../../gen/svc/v1/session_pb.ts";
import { SvcError } from "../errors.ts";
import { userOf } from "../rpc/user-context.ts";
import type { TokenAuthority } from "../tokens/token-authority.ts";

const defaultTtlSecs = 43_200;

/** @param pageAddress where a browser on this machine finds the page; undefined where it does not */
export function createSessionService(
  tokens: TokenAuthority,
  pageAddress: () => string | undefined,
): ServiceImpl<typeof SessionService> {
  return {
    issueSessionCode: ({ ttlSecs = defaultTtlSecs }, context) => {
      const { kind, uid, root, ownerUid } = userOf(context);
      if (kind === "local")
        throw notPossible("the page is a daemon's, and none answers here; start one: svc daemon");
      const page = pageAddress();
      if (page === undefined) throw notPossible("this daemon listens on no TCP address: set [api] listen");
      const { token: code, expiresAtMs } = tokens.issueSessionCode({ uid, root, ownerUid }, ttlSecs);
      return { code, expiresAt: timestampFromMs(expiresAtMs), page };
    },

    openSession: (_request, context) => {
      const { tokenDigest = "" } = userOf(context);
      const { token, expiresAtMs } = tokens.openSession(tokenDigest);
      return { token, expiresAt: timestampFromMs(expiresAtMs) };
    },

    endSessions: (_request, context) => {
      const { kind, uid, tokenDigest: name = "" } = userOf(context);
      return { ended: tokens.endSessions(kind === "session" ? { name } : { uid }) };
    },
  };
}

function notPossible(message: string): SvcError {
  return new SvcError("not_possible", message);
}
