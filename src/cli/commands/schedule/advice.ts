/** The next step when a command about jobs fails. */
import type { ReasonPayloads } from "../../../errors.ts";
import type { Advice } from "../../output/advice.ts";

export const adviceOnJobs: Advice = ({ reason, payload }, { host }) => {
  if (reason !== "invalid_request" || host.uid === 0) return undefined;
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  const isAbout = (what: string): boolean =>
    violations.some(({ field = "" }) => field === `action.${what}` || field.endsWith(`.action.${what}`));
  // An action type that users' jobs may not use at all is not allowed for an app either.
  if (isAbout("type")) return "run it with sudo";
  return isAbout("app")
    ? "name one of your apps with --app ID (see: svc ls), or run it with sudo"
    : undefined;
};
