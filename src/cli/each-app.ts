/** Commands that take several apps: one after the other, and a failure does not keep the others from their turn. */
import type { CommandContext } from "./context.ts";
import { ReportedError } from "./failure.ts";
import { escapeControls } from "./render/escape.ts";

export interface AppAction<Result> {
  readonly call: (id: string) => Promise<Result>;
  /** One line for people about what was done. */
  readonly text: (result: Result) => string;
}

/**
 * Prints each result as it comes: a line for people, or JSON; of several apps one JSON line each.
 * @throws the error itself when there is one app; else ReportedError with the first failure's exit code
 */
export async function forEachApp<Result>(
  context: CommandContext,
  ids: readonly string[],
  action: AppAction<Result>,
): Promise<void> {
  let exitCode: number | undefined;
  for (const id of ids) {
    context.throwIfInterrupted();
    try {
      const result = await action.call(id);
      if (!context.json) await context.print(`${escapeControls(action.text(result))}\n`);
      else if (ids.length === 1) await context.printJson(result);
      else await context.printJsonLine(result);
    } catch (error) {
      if (ids.length === 1 || context.host.interrupted.aborted) throw error;
      const failed = context.report(error, id);
      exitCode ??= failed;
    }
  }
  if (exitCode !== undefined) throw new ReportedError(exitCode);
}
