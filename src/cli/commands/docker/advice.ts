/** What to do next when a command about containers fails. */
import { AdvisedError, asSvcError } from "../../failure.ts";
import type { Action, RunCommand } from "../../program.ts";

/** As `run`, with the next step said in the errors that containers alone have. */
export function adviseOnContainers(run: RunCommand): RunCommand {
  return <Args extends readonly unknown[]>(action: Action<Args>) =>
    run(async (context, ...args: Args) => {
      try {
        await action(context, ...args);
      } catch (error) {
        throw advised(error);
      }
    });
}

export function advised(thrown: unknown): unknown {
  const error = asSvcError(thrown);
  if (error === undefined || error instanceof AdvisedError) return thrown;
  const isMissing = error.reason === "not_found" && /^no (container|compose project) /.test(error.message);
  return isMissing ? new AdvisedError(error, `${error.message}; see them with: svc docker ps --all`) : thrown;
}
