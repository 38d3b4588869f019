/** What to do next when a command about jobs fails. */
import type { ReasonPayloads, SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { AdvisedError, asSvcError } from "../../failure.ts";
import type { Action, RunCommand } from "../../program.ts";

/** As `run`, with the next step said in the errors that jobs alone have. */
export function adviseOnJobs(run: RunCommand): RunCommand {
  return <Args extends readonly unknown[]>(action: Action<Args>) =>
    run(async (context, ...args: Args) => {
      try {
        await action(context, ...args);
      } catch (error) {
        throw advised(context, error);
      }
    });
}

export function advised(context: CommandContext, thrown: unknown): unknown {
  const error = asSvcError(thrown);
  const step = error === undefined || error instanceof AdvisedError ? undefined : nextStep(context, error);
  return error === undefined || step === undefined
    ? thrown
    : new AdvisedError(error, `${error.message}; ${step}`);
}

function nextStep({ host }: CommandContext, error: SvcError): string | undefined {
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
}

const ownAppsOnly = "name one of your apps with --app ID (see: svc ls), or run it with sudo";

/** The daemon wants another action, or an app, since the job is a user's. */
function concernsUsersAction({ payload }: SvcError): boolean {
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  return violations.some(
    ({ field, description }) =>
      /(^|\.)action\.(app|type)$/.test(field ?? "") && /\buser's\b/.test(description ?? ""),
  );
}
