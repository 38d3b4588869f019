/** TokenService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createTokenService(): ServiceImpl<typeof TokenService> {
  return {
    getTokenStatus: unimplemented,
    issueAccessToken: unimplemented,
    revokeAccessTokens: unimplemented,
    rotatePrimaryToken: unimplemented,
    commitPrimaryTokenRotation: unimplemented,
  };
}
