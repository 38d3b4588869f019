/** The payload of each reason: one table for Connect and gRPC details, REST bodies and OpenAPI. */
import { create, type DescMessage, type Message } from "@bufbuild/protobuf";
import {
  AmbiguousSchema,
  CommandFailedSchema,
  InternalErrorSchema,
  InvalidRequestSchema,
  JobOwnedSchema,
  LicenseRequiredSchema,
  NoManifestSchema,
  NotFoundErrorSchema,
  OwnedByAppSchema,
  TokenDeniedSchema,
  type ErrorDetail,
} from "../gen/svc/v1/error_pb.ts";
import type { ErrorDetailReason } from "../gen/svc/v1/values.ts";

interface PayloadKind {
  /** The matching member of `ErrorDetail.payload`. */
  readonly name: NonNullable<ErrorDetail["payload"]["case"]>;
  /** Loaded on first use, because it decodes the descriptors of all payloads. */
  readonly schema: () => DescMessage;
}

/** Reasons that are not listed have no payload. */
export const payloadKinds = {
  token_denied: { name: "tokenDenied", schema: () => TokenDeniedSchema },
  not_found: { name: "notFound", schema: () => NotFoundErrorSchema },
  license_required: { name: "licenseRequired", schema: () => LicenseRequiredSchema },
  ambiguous: { name: "ambiguous", schema: () => AmbiguousSchema },
  no_manifest: { name: "noManifest", schema: () => NoManifestSchema },
  invalid_request: { name: "invalidRequest", schema: () => InvalidRequestSchema },
  owned_by_app: { name: "ownedByApp", schema: () => OwnedByAppSchema },
  job_owned: { name: "jobOwned", schema: () => JobOwnedSchema },
  internal: { name: "internal", schema: () => InternalErrorSchema },
  build_failed: { name: "commandFailed", schema: () => CommandFailedSchema },
  start_failed: { name: "commandFailed", schema: () => CommandFailedSchema },
} satisfies Partial<Record<ErrorDetailReason, PayloadKind>>;

interface Payload {
  readonly name: PayloadKind["name"];
  readonly schema: DescMessage;
  readonly value: Message;
}

/** The payload of an error; undefined if its reason has none. A reason with a payload always has it, even if it is empty. */
export function payloadOf(reason: ErrorDetailReason, fields: unknown): Payload | undefined {
  if (!Object.hasOwn(payloadKinds, reason)) return undefined;
  const { name, schema: schemaOf }: PayloadKind = payloadKinds[reason as keyof typeof payloadKinds];
  const schema = schemaOf();
  return { name, schema, value: create(schema, fields as Record<string, unknown> | undefined) };
}
