/** Error responses of REST: `{"error", "code", "reason", "<reason>": payload}` and a status. */
import { payloadOf } from "../../error-payloads.ts";
import { statusOf, type ErrorCode, type SvcError } from "../../errors.ts";
import type { JsonWriter } from "./json-writer.ts";

/** HTTP status of each code. */
export const statusByCode: Readonly<Record<ErrorCode, number>> = {
  invalid_argument: 400,
  out_of_range: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  already_exists: 409,
  failed_precondition: 409,
  aborted: 409,
  resource_exhausted: 429,
  canceled: 499,
  internal: 500,
  data_loss: 500,
  unimplemented: 501,
  unavailable: 503,
  deadline_exceeded: 504,
};

/** Response to a failed request. */
export interface ErrorResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON text. */
  readonly body: string;
}

/** @param allow the HTTP methods that the path allows, for a 405 */
export function errorResponse(writer: JsonWriter, error: SvcError, allow?: readonly string[]): ErrorResponse {
  const { code, reason, message } = error;
  const status = statusOf(reason) ?? statusByCode[code];
  const headers: Record<string, string> = {};
  if (status === 401) headers["www-authenticate"] = 'Bearer realm="svc"';
  if (allow !== undefined) headers["allow"] = allow.join(", ");

  const body = JSON.stringify({ error: message, code, reason });
  const payload = payloadOf(reason, error.payload);
  if (payload === undefined) return { status, headers, body };
  const payloadText = writer.message(payload.schema, payload.value);
  return { status, headers, body: `${body.slice(0, -1)},${JSON.stringify(reason)}:${payloadText}}` };
}
