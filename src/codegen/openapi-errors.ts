/** The error answers of REST, for OpenAPI: one schema of the body, one response for each status. */
import type { DescMessage } from "@bufbuild/protobuf";
import { ErrorDetailReasons } from "../../gen/svc/v1/words.ts";
import { payloadKinds } from "../error-payloads.ts";
import { codeOf, statusOf } from "../errors.ts";
import { statusByCode } from "../rest/errors.ts";
import type { Response, Schema } from "./openapi-document.ts";
import { componentName } from "./openapi-schemas.ts";

const statuses: Readonly<Record<number, [name: string, description: string]>> = {
  // Code generators put schemas and responses into one namespace: no name of a response may be one of a message.
  400: [
    "BadRequest",
    "The request breaks the contract, field by field in `invalid_request`, or the package that it names is none.",
  ],
  401: ["Unauthenticated", "No recognised bearer token, or a peer that is nobody here."],
  403: ["Denied", "The caller may not do this, or came by way of a browser that may not."],
  404: ["NotFound", "There is no such thing, or none that this caller may see."],
  409: ["Conflict", "The state of things is in the way."],
  412: ["Changed", "What was to be replaced is not what it was when it was read."],
  413: [
    "BodyTooLarge",
    "The body is larger than 1 MiB, or holds more than 65,536 fields, elements and brackets.",
  ],
  415: ["UnsupportedMediaType", "The body is not JSON."],
  416: ["RangeNotSatisfiable", "The range begins behind the end."],
  429: ["TooMany", "A bound on requests, tokens or space is reached."],
  431: ["HeadTooLarge", "The path and the query with the headers take more than 16 KiB. No body."],
  500: [
    "Internal",
    "Something broke inside the daemon: its log has the cause under the request id of `internal`. Or what is kept of an archive is not what was written.",
  ],
  501: ["NotImplemented", "This daemon does not offer the method; see `capabilities` of the status."],
  503: ["Unavailable", "Not now."],
  504: ["DeadlineExceeded", "It took too long."],
};

/** The reasons that REST answers with a status. */
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
    description: "Names the request in the daemon's log.",
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
      // Refused before it is a request.
      return [name, status === "431" ? { description } : { description, headers, content }];
    }),
  );
}

export interface OperationTraits {
  /** Changes something: only then there is a conflict. */
  changes: boolean;
  /** Names something that may not be there. */
  namesSomething: boolean;
  /** Takes text in its path or query. */
  takesText: boolean;
  /** Takes bare bytes, of any type and size. */
  isUpload: boolean;
  /** Answers with bare bytes. */
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
    ...(changes ? [] : ["409"]),
    ...(namesSomething ? [] : ["404"]),
    ...(takesText ? [] : ["431"]),
    // Reading has no body, and an upload any.
    ...(changes && !isUpload ? [] : ["413", "415"]),
    ...(isUpload ? [] : ["412"]),
    ...(isDownload ? [] : ["416"]),
  ]);
  const references = Object.entries(statuses).filter(([status]) => !absent.has(status));
  return Object.fromEntries(
    references.map(([status, [name]]) => [status, { $ref: `#/components/responses/${name}` }]),
  );
}

/** The body of every error. A reason that has a payload carries it under its own name. */
export function errorSchema(): Schema {
  const payloads = Object.entries(payloadKinds).map(([reason, { schema: message }]): [string, Schema] => [
    reason,
    { $ref: `#/components/schemas/${componentName(message())}`, description: `Payload of \`${reason}\`.` },
  ]);
  return {
    type: "object",
    description: "Why a request failed.",
    properties: {
      error: { type: "string", description: "One plain sentence for people." },
      code: {
        type: "string",
        enum: Object.keys(statusByCode),
        description: "The code, as Connect and gRPC have it.",
      },
      reason: { type: "string", enum: ErrorDetailReasons, description: "A machine word to switch on." },
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
