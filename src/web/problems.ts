/** The daemon's messages about fields of a request. */
import { describeError, payloadOf } from "./api.ts";

export type Problems = Readonly<Record<string, string>>;

/** By field, in JSON names such as `action.url`; general problems have the empty name. */
export function problemsOf(error: unknown): Problems {
  const payload = payloadOf(error);
  if (payload?.case !== "invalidRequest") return { "": describeError(error) };
  return Object.fromEntries(payload.value.violations.map(({ field, description }) => [field, description]));
}

/** Focuses the first field with a problem, which may be outside of the visible area. */
export function goToFirstProblem(form: HTMLFormElement): void {
  // After rendering.
  setTimeout(() => form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
}
