/** TokenService: one domain call per method. */
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { TokenService } from "../../../gen/svc/v1/token_pb.ts";
import { SvcError } from "../../errors.ts";
import { userOf, type UserContext } from "../rpc/user-context.ts";
import type { TokenAuthority } from "../../access/tokens/token-authority.ts";

const defaultTtlSecs = 600;
const defaultGraceSecs = 300;

export function createTokenService(tokens: TokenAuthority): ServiceImpl<typeof TokenService> {
  return {
    getTokenStatus: async (_request, context) => {
      await tokens.open();
      const { accessTokens, sessions, graceUntilMs, primaryDigest } = tokens.status();
      return {
        kind: shownKind(userOf(context)),
        accessTokens,
        sessions,
        rotationOpen: graceUntilMs !== undefined,
        ...(graceUntilMs !== undefined && { graceUntil: timestampFromMs(graceUntilMs) }),
        primaryDigest,
      };
    },

    issueAccessToken: ({ ttlSecs = defaultTtlSecs, label }, context) => {
      const { tokenDigest } = userInDaemon(userOf(context));
      const { token, expiresAtMs } = tokens.issueAccess(ttlSecs, label, tokenDigest);
      return { token, expiresAt: timestampFromMs(expiresAtMs) };
    },

    revokeAccessTokens: (_request, context) => {
      userInDaemon(userOf(context));
      return { revoked: tokens.revokeAccess() };
    },

    rotatePrimaryToken: async ({ graceSecs = defaultGraceSecs }, context) => {
      await tokens.open();
      const { token, graceUntilMs, revoked } = await tokens.rotate(userOf(context).tokenDigest, graceSecs);
      return { token, graceUntil: timestampFromMs(graceUntilMs), revoked };
    },

    commitPrimaryTokenRotation: async (_request, context) => {
      await tokens.open();
      return { committed: await tokens.commit(userOf(context).tokenDigest) };
    },
  };
}

/** Root on the socket, or in this process, has the primary token's authority without a token. */
function shownKind({ kind }: UserContext): string {
  return kind === "local" ? "peer" : kind;
}

/** @throws SvcError `failed_precondition` for a command that works without a daemon */
function userInDaemon(user: UserContext): UserContext {
  if (user.kind !== "local") return user;
  throw new SvcError(
    "not_possible",
    "access tokens need a daemon, and none responds here; start one: svc daemon",
  );
}
