/** What to do next when a command about jobs fails. */
import type { ReasonPayloads, SvcError } from "../../../errors.ts";
import type { Advice } from "../../advice.ts";

export const adviceOnJobs: Advice = (error, { host }) => {
  switch (error.reason) {
    case "not_found":
      return /^no (job|schedule) /.test(error.message) ? "see the jobs with: svc schedule list" : undefined;
    case "root_required":
      return host.uid === 0 ? undefined : ownAppsOnly;
    case "invalid_request":
      return host.uid !== 0 && concernsUsersAction(error) ? ownAppsOnly : undefined;
    default:
      return undefined;
  }
};

const ownAppsOnly = "name one of your apps with --app ID (see: svc ls), or run it with sudo";

/** The daemon wants another action, or an app, since the job is a user's. */
function concernsUsersAction({ payload }: SvcError): boolean {
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  return violations.some(
    ({ field, description }) =>
      /(^|\.)action\.(app|type)$/.test(field ?? "") && /\buser's\b/.test(description ?? ""),
  );
}
