/**
 * The errors of the domain: a plain sentence for people, a code for the transport, a reason for machines,
 * and the payload that belongs to the reason. Only `rpc/` turns them into Connect errors and `rest/` into bodies.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  AmbiguousSchema,
  CommandFailedSchema,
  FieldViolationSchema,
  InternalErrorSchema,
  InvalidRequestSchema,
  JobOwnedSchema,
  LicenseRequiredSchema,
  OwnedByAppSchema,
  TokenDeniedSchema,
} from "../gen/svc/v1/error_pb.ts";
import type { ErrorDetailReason } from "../gen/svc/v1/words.ts";

/** The canonical codes, as Connect spells them. */
export type ErrorCode =
  | "canceled"
  | "unknown"
  | "invalid_argument"
  | "deadline_exceeded"
  | "not_found"
  | "already_exists"
  | "permission_denied"
  | "resource_exhausted"
  | "failed_precondition"
  | "aborted"
  | "out_of_range"
  | "unimplemented"
  | "internal"
  | "unavailable"
  | "data_loss"
  | "unauthenticated";

/** The reasons that carry a payload, with its shape. */
export interface ReasonPayloads {
  token_denied: MessageInitShape<typeof TokenDeniedSchema>;
  license_required: MessageInitShape<typeof LicenseRequiredSchema>;
  ambiguous: MessageInitShape<typeof AmbiguousSchema>;
  invalid_request: MessageInitShape<typeof InvalidRequestSchema>;
  owned_by_app: MessageInitShape<typeof OwnedByAppSchema>;
  job_owned: MessageInitShape<typeof JobOwnedSchema>;
  internal: MessageInitShape<typeof InternalErrorSchema>;
  build_failed: MessageInitShape<typeof CommandFailedSchema>;
  start_failed: MessageInitShape<typeof CommandFailedSchema>;
}

/** The payload that goes with reason `R`; `undefined` for a reason that says everything. */
export type ReasonPayload<R extends ErrorDetailReason> = R extends keyof ReasonPayloads
  ? ReasonPayloads[R]
  : undefined;

/** A field and what is wrong with it. */
export type FieldViolation = MessageInitShape<typeof FieldViolationSchema>;

export interface SvcErrorOptions<R extends ErrorDetailReason> {
  /** The payload of the reason. */
  payload?: ReasonPayload<R> | undefined;
  /** What led to it: logged, never sent. */
  cause?: unknown;
}

/** An error that is meant for the caller: its message is one plain sentence that says what to do or which bound broke. */
export class SvcError<R extends ErrorDetailReason = ErrorDetailReason> extends Error {
  readonly code: ErrorCode;
  readonly reason: R;
  readonly payload: ReasonPayload<R> | undefined;

  constructor(code: ErrorCode, reason: R, message: string, options: SvcErrorOptions<R> = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.name = "SvcError";
    this.code = code;
    this.reason = reason;
    this.payload = options.payload;
  }
}

/** `not_found`: nothing of that name, or nothing that this caller may see. */
export function notFound(kind: string, name: string): SvcError<"not_found"> {
  return new SvcError("not_found", "not_found", `no ${kind} "${name}"`);
}

/** How descriptions begin that go on with the field's name as their subject. */
const predicate = /^(?:must|is|has|cannot|comes|looks|needs) /;

/**
 * `invalid_argument` with one violation per field; the message joins them to a sentence that begins with what is wrong.
 * A description says it of the field (`must be …`, `is required`) or is a sentence of its own.
 */
export function invalidRequest(violations: readonly FieldViolation[]): SvcError<"invalid_request"> {
  const message = violations.map(sentenceOf).join("; ");
  return new SvcError("invalid_argument", "invalid_request", message, {
    payload: { violations: [...violations] },
  });
}

function sentenceOf({ field = "", description = "" }: FieldViolation): string {
  if (field === "") return description;
  return predicate.test(description) ? `${field} ${description}` : `${field}: ${description}`;
}

/** `invalid_argument` about one field; empty: about the request. */
export function invalidField(field: string, description: string): SvcError<"invalid_request"> {
  return invalidRequest([{ field, description }]);
}

/** `failed_precondition`: the state does not allow it now (REST 409). */
export function failedPrecondition<R extends ErrorDetailReason>(
  reason: R,
  message: string,
  options: SvcErrorOptions<R> = {},
): SvcError<R> {
  return new SvcError("failed_precondition", reason, message, options);
}

/** `canceled`: the other side is gone. */
export function clientGone(): SvcError<"canceled"> {
  return new SvcError("canceled", "canceled", "the client went away");
}

/**
 * Most that may be in what is parsed in one piece of those who are not root: brackets, commas, colons and quotes of JSON, or fields of a
 * binary message, those that are messages twice. As much takes some 20 ms, in which nobody else is served.
 */
export const maxStructure = 64 * 1024;

/** `resource_exhausted`: there are not too many bytes, but too much is in them. */
export function tooMuchStructure(): SvcError<"body_too_large"> {
  return new SvcError(
    "resource_exhausted",
    "body_too_large",
    `the body must not hold more than ${maxStructure} fields, elements and brackets; send it in parts`,
  );
}
