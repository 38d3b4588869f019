/** What the daemon says of the fields of a request. */
import { describeError, payloadOf } from "./api.ts";

export type Problems = Readonly<Record<string, string>>;

/** By field, in JSON names such as `action.url`; what is about none is under the empty name. */
export function problemsOf(error: unknown): Problems {
  const payload = payloadOf(error);
  if (payload?.case !== "invalidRequest") return { "": describeError(error) };
  return Object.fromEntries(payload.value.violations.map(({ field, description }) => [field, description]));
}

/** Goes to the first field that something is said of: it may be out of sight of whoever pressed the button. */
export function goToFirstProblem(form: HTMLFormElement): void {
  // By then it is drawn.
  setTimeout(() => form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
}
