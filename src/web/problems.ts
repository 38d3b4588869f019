/** What the daemon says of the fields of a request. */
import { payloadOf } from "./api.ts";

/** By field, in JSON names such as `action.url`; undefined when the error is about none. */
export function violationsOf(error: unknown): Readonly<Record<string, string>> | undefined {
  const payload = payloadOf(error);
  if (payload?.case !== "invalidRequest") return undefined;
  return Object.fromEntries(payload.value.violations.map(({ field, description }) => [field, description]));
}
