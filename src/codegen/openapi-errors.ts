/** Error responses of REST for OpenAPI: one schema of the body, one response for each status. */
import type { DescMessage } from "@bufbuild/protobuf";
import type { ReasonRule } from "../../gen/svc/v1/rules_pb.ts";
import { ErrorDetailReasons } from "../../gen/svc/v1/values.ts";
import { payloadKinds } from "../error-payloads.ts";
import { codeOf, statusOf } from "../errors.ts";
import { statusByCode } from "../server/rest/errors.ts";
import type { Response, Schema } from "./openapi-document.ts";
import { componentName } from "./openapi-schemas.ts";

const statuses: Readonly<Record<number, [name: string, description: string]>> = {
  // Code generators put schemas and responses into one namespace, so a response must not have the name of a message.
  400: [
    "BadRequest",
    "The request is not valid, or the package that it names is not valid. `invalid_request` lists each field.",
  ],
  401: [
    "Unauthenticated",
    "The bearer token is missing or not valid, or the user of the socket peer is unknown.",
  ],
  403: ["Denied", "The caller is not allowed to do this, or a web page of another origin sent the request."],
  404: ["NotFound", "The object does not exist, or the caller may not see it."],
  409: ["Conflict", "The current state does not allow the operation."],
  412: ["Changed", "The file has changed since it was read."],
  413: [
    "BodyTooLarge",
    "The body is larger than 1 MiB, or has more than 65,536 fields, elements and brackets.",
  ],
  415: ["UnsupportedMediaType", "The body is not JSON."],
  416: ["RangeNotSatisfiable", "The range starts after the end."],
  429: ["TooMany", "A limit on requests, objects or disk space is reached."],
  431: ["HeadTooLarge", "Path, query and headers together exceed 16 KiB. The response has no body."],
  499: ["Canceled", "Another request canceled the operation."],
  500: [
    "Internal",
    "An internal error: the daemon's log has the cause under the request ID in `internal`. Or a stored archive or stored data is damaged.",
  ],
  501: [
    "NotImplemented",
    "This daemon does not implement the method; see `capabilities` of `GET /v1/status`.",
  ],
  503: ["Unavailable", "The daemon or a dependency is not available; try again later."],
  504: ["DeadlineExceeded", "The call took longer than its deadline."],
};

/** The reasons with this status, as a sentence. */
function reasonsOf(status: number): string {
  const reasons = ErrorDetailReasons.filter(
    (reason) => (statusOf(reason) ?? statusByCode[codeOf(reason)]) === status,
  );
  return reasons.length === 0 ? "" : ` Reasons: ${reasons.map((reason) => `\`${reason}\``).join(", ")}.`;
}

export const payloadMessages: readonly DescMessage[] = [
  ...new Set(Object.values(payloadKinds).map(({ schema }) => schema())),
];

/** The responses among the components, by name. */
export function errorResponses(): Record<string, Response> {
  const requestId = {
    description: "ID of the request in the daemon's log.",
    schema: { type: "string" },
  };
  const challenge = { description: '`Bearer realm="svc"`', schema: { type: "string" } };
  const content = { "application/json": { schema: { $ref: "#/components/schemas/Error" } } };
  return Object.fromEntries(
    Object.entries(statuses).map(([status, [name, sentence]]) => {
      const description = sentence + reasonsOf(Number(status));
      const headers = {
        "X-Request-Id": requestId,
        ...(status === "401" && { "WWW-Authenticate": challenge }),
      };
      // The HTTP parser rejects the request before it has an ID.
      return [name, status === "431" ? { description } : { description, headers, content }];
    }),
  );
}

export interface OperationTraits {
  /** Changes something, and so can conflict and be canceled. */
  changes: boolean;
  /** Names an object, which may not exist, or whose state may not allow the operation. */
  namesSomething: boolean;
  /** Has text in its path or query. */
  takesText: boolean;
  /** Accepts raw bytes of any type and size. */
  isUpload: boolean;
  /** Returns raw bytes. */
  isDownload: boolean;
}

/** The error responses of an operation. */
export function errorReferences({
  changes,
  namesSomething,
  takesText,
  isUpload,
  isDownload,
}: OperationTraits): Record<string, { $ref: string }> {
  const absent = new Set([
    ...(changes || namesSomething ? [] : ["409"]),
    ...(changes ? [] : ["499"]),
    ...(namesSomething ? [] : ["404"]),
    ...(takesText ? [] : ["431"]),
    // Reads have no body, and uploads accept any body.
    ...(changes && !isUpload ? [] : ["413", "415"]),
    ...(isUpload ? [] : ["412"]),
    ...(isDownload ? [] : ["416"]),
  ]);
  const references = Object.entries(statuses).filter(([status]) => !absent.has(status));
  return Object.fromEntries(
    references.map(([status, [name]]) => [status, { $ref: `#/components/responses/${name}` }]),
  );
}

/**
 * The body of every error. The payload of a reason is in the property with its name.
 * @param reasons the reasons in the contract
 */
export function errorSchema(reasons: readonly ReasonRule[]): Schema {
  const payloads = Object.entries(payloadKinds).map(([reason, { schema: message }]): [string, Schema] => [
    reason,
    { $ref: `#/components/schemas/${componentName(message())}`, description: `Payload of \`${reason}\`.` },
  ]);
  return {
    type: "object",
    description: "An error.",
    properties: {
      error: { type: "string", description: "Message for people, one sentence." },
      code: {
        type: "string",
        enum: Object.keys(statusByCode),
        description: "Error code, as in Connect and gRPC.",
      },
      reason: {
        type: "string",
        enum: ErrorDetailReasons,
        description: `Reason for programs.\n\n${reasons.map(({ word, meaning }) => `- \`${word}\`: ${meaning}`).join("\n")}`,
      },
      ...Object.fromEntries(payloads),
    },
    required: ["error", "code", "reason"],
    additionalProperties: false,
    allOf: payloads.map(([reason]) => ({
      if: { type: "object", properties: { reason: { const: reason } }, required: ["reason"] },
      then: { type: "object", required: [reason] },
    })),
  };
}
