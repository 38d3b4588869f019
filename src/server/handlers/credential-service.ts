/** CredentialService: secrets are write-only. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { CredentialSchema, CredentialService } from "../../../gen/svc/v1/credential_pb.ts";
import type { CredentialKind } from "../../../gen/svc/v1/values.ts";
import type { Credentials, CredentialView } from "../../access/credentials.ts";
import { secretMask } from "../../lib/secret-mask.ts";
import { userOf } from "../rpc/user-context.ts";

export function createCredentialService(credentials: Credentials): ServiceImpl<typeof CredentialService> {
  return {
    listCredentials: (_request, context) => ({
      credentials: credentials.list(userOf(context)).map(messageOf),
    }),

    upsertCredential: async ({ name, kind, host, username, secret }, context) => {
      const spec = { name, kind: kind as CredentialKind, host, username, secret };
      return messageOf(await credentials.upsert(spec, userOf(context)));
    },

    removeCredential: async ({ name, owner }, context) => {
      await credentials.remove(name, owner, userOf(context));
      return { name };
    },
  };
}

function messageOf({
  updatedAtMs,
  ownerUid,
  ...credential
}: CredentialView): MessageInitShape<typeof CredentialSchema> {
  return { ...credential, secret: secretMask, owner: ownerUid, updatedAt: timestampFromMs(updatedAtMs) };
}
