/** The next step, said in the errors that some commands alone have. */
import type { SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { AdvisedError, asSvcError } from "./failure.ts";
import type { Action, RunCommand } from "./run-command.ts";

/** What to do next; undefined where nothing more is to be said than for any command. */
export type Advice = (error: SvcError, context: CommandContext) => string | undefined;

/** As `run`, for commands whose errors get such advice. */
export function runWithAdvice(run: RunCommand, advice: Advice): RunCommand {
  return <Args extends readonly unknown[]>(action: Action<Args>) =>
    run(async (context, ...args: Args) => {
      try {
        await action(context, ...args);
      } catch (error) {
        throw advised(error, advice, context);
      }
    });
}

/** What was thrown, with the next step in its message where there is one. */
export function advised(thrown: unknown, advice: Advice, context: CommandContext): unknown {
  const error = asSvcError(thrown);
  if (error === undefined || error instanceof AdvisedError) return thrown;
  const step = advice(error, context);
  return step === undefined ? thrown : new AdvisedError(error, `${error.message}; ${step}`);
}
