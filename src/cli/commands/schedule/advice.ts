/** What to do next when a command about jobs fails. */
import type { ReasonPayloads, SvcError } from "../../../errors.ts";
import type { Advice } from "../../advice.ts";

export const adviceOnJobs: Advice = (error, { host }) => {
  switch (error.reason) {
    case "root_required":
      return host.uid === 0 ? undefined : ownAppsOnly;
    case "invalid_request":
      return host.uid !== 0 && concernsAction(error) ? ownAppsOnly : undefined;
    default:
      return undefined;
  }
};

const ownAppsOnly = "name one of your apps with --app ID (see: svc ls), or run it with sudo";

/** The daemon wants another action, or an app, as it does of a user's jobs. */
function concernsAction({ payload }: SvcError): boolean {
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  return violations.some(({ field }) => /(^|\.)action\.(app|type)$/.test(field ?? ""));
}
