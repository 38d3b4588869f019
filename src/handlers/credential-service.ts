/** CredentialService: its methods come with their domain folder. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { unimplemented } from "../rpc/unimplemented.ts";

export function createCredentialService(): ServiceImpl<typeof CredentialService> {
  return { listCredentials: unimplemented, upsertCredential: unimplemented, removeCredential: unimplemented };
}
