/**
 * Errors of the domain: a plain sentence for people, a machine-readable reason, which has one code in the contract,
 * and the reason's payload. Only `rpc/` converts them to Connect errors and `rest/` to bodies.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { FieldViolationSchema } from "../gen/svc/v1/error_pb.ts";
import { reasonRules } from "../gen/svc/v1/reasons.ts";
import type { ErrorDetailReason } from "../gen/svc/v1/values.ts";
import type { payloadKinds } from "./error-payloads.ts";

/** The reason that stands for a code if no reason was given. */
const reasonByCode = {
  canceled: "canceled",
  invalid_argument: "invalid_request",
  deadline_exceeded: "deadline_exceeded",
  not_found: "not_found",
  already_exists: "already_exists",
  permission_denied: "denied",
  resource_exhausted: "too_many",
  failed_precondition: "not_possible",
  aborted: "conflict",
  out_of_range: "range_not_satisfiable",
  unimplemented: "not_implemented",
  internal: "internal",
  unavailable: "unavailable",
  data_loss: "archive_damaged",
  unauthenticated: "unauthenticated",
} as const satisfies Readonly<Record<string, ErrorDetailReason>>;

/** The canonical codes, as Connect spells them. */
export type ErrorCode = keyof typeof reasonByCode;

/** The reasons that carry a payload, with its shape. */
export type ReasonPayloads = {
  [R in keyof typeof payloadKinds]: MessageInitShape<ReturnType<(typeof payloadKinds)[R]["schema"]>>;
};

const rules: Readonly<Record<ErrorDetailReason, { readonly code: ErrorCode; readonly status?: number }>> =
  reasonRules;

/** The code of a reason. */
export function codeOf(reason: ErrorDetailReason): ErrorCode {
  return rules[reason].code;
}

/** The HTTP status of a reason; undefined if it is that of its code. */
export function statusOf(reason: ErrorDetailReason): number | undefined {
  return rules[reason].status;
}

/** The reason that a daemon sent, possibly one of another version; without one, the reason that its code implies. */
export function knownReason(reason: unknown, code: unknown): ErrorDetailReason {
  if (typeof reason === "string" && Object.hasOwn(rules, reason)) return reason as ErrorDetailReason;
  const isCode = typeof code === "string" && Object.hasOwn(reasonByCode, code);
  return isCode ? reasonByCode[code as ErrorCode] : "internal";
}

/** The payload of reason `R`; `undefined` for a reason without one. */
export type ReasonPayload<R extends ErrorDetailReason> = R extends keyof ReasonPayloads
  ? ReasonPayloads[R]
  : undefined;

/** A field and what is wrong with it. */
export type FieldViolation = MessageInitShape<typeof FieldViolationSchema>;

export interface SvcErrorOptions<R extends ErrorDetailReason> {
  /** The payload of the reason. */
  payload?: ReasonPayload<R> | undefined;
  /** The underlying error: logged, never sent. */
  cause?: unknown;
}

/** An error for the caller: its message is one plain sentence that states what to do or which limit was exceeded. */
export class SvcError<R extends ErrorDetailReason = ErrorDetailReason> extends Error {
  readonly code: ErrorCode;
  readonly reason: R;
  readonly payload: ReasonPayload<R> | undefined;

  constructor(reason: R, message: string, options: SvcErrorOptions<R> = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.name = "SvcError";
    this.code = codeOf(reason);
    this.reason = reason;
    this.payload = options.payload;
  }
}

/** The message that users may see: other errors than `SvcError` are only logged. */
export function messageForUsers(error: unknown): string {
  return error instanceof SvcError ? error.message : "internal error; see the daemon's log";
}

/** `not_found`: no object has this name, or the caller may not see it. */
export function notFound(
  kind: string,
  name: string,
  message = `no ${kind} "${name}"`,
  cause?: unknown,
): SvcError<"not_found"> {
  return new SvcError("not_found", message, { payload: { kind, name }, cause });
}

/** Descriptions that begin with one of these verbs have the field's name as their subject. */
const predicate = /^(?:must|is|has|cannot|comes|looks|needs) /;

/**
 * `invalid_argument` with one violation per field. The message joins the violations. A description continues the
 * field's name (`must be …`, `is required`) or is a complete sentence.
 */
export function invalidRequest(violations: readonly FieldViolation[]): SvcError<"invalid_request"> {
  const message = violations.map(sentenceOf).join("; ");
  return new SvcError("invalid_request", message, { payload: { violations: [...violations] } });
}

/** Whether a description is a complete sentence, rather than a continuation of the field's name. */
export function hasOwnSubject(description: string): boolean {
  return !predicate.test(description);
}

/** A violation as it stands in the message. */
export function sentenceOf({ field = "", description = "" }: FieldViolation): string {
  if (field === "") return description;
  return hasOwnSubject(description) ? `${field}: ${description}` : `${field} ${description}`;
}

/** `invalid_argument` about one field; empty: about the request. */
export function invalidField(field: string, description: string): SvcError<"invalid_request"> {
  return invalidRequest([{ field, description }]);
}

/** Whether a write failed because the disk is full. */
export function isDiskFull(error: unknown): error is SvcError<"disk_full"> {
  return error instanceof SvcError && error.reason === "disk_full";
}

/** `canceled`: the client disconnected. */
export function clientGone(): SvcError<"canceled"> {
  return new SvcError("canceled", "the client disconnected");
}

/**
 * Maximum structure of a message from a regular user that is parsed in one piece. Counts brackets, commas, colons and
 * quotes of JSON, or fields of a binary message, where fields with messages count twice. Parsing this many takes
 * about 20 ms, during which nobody else is served.
 */
export const maxStructure = 64 * 1024;

/** `resource_exhausted`: the size of the body is allowed, but it contains too many elements. */
export function tooMuchStructure(): SvcError<"body_too_large"> {
  return new SvcError(
    "body_too_large",
    `the body must not hold more than ${maxStructure} fields, elements and brackets; send it in parts`,
  );
}
