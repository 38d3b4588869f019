/** Commands that take several names: one after the other, and a failure does not keep the others from their turn. */
import { advised, type Advice } from "./advice.ts";
import type { CommandContext } from "./context.ts";
import { ReportedError } from "./failure.ts";
import { escapeControls } from "./render/escape.ts";

export interface NamedWork<Result> {
  readonly call: (name: string) => Promise<Result>;
  /** One line for people about what was done. */
  readonly text: (result: Result) => string;
  /** What the command's errors get. */
  readonly advice?: Advice;
}

/**
 * Prints each result as it comes: a line for people, or JSON; of several names one JSON line each. An error is reported
 * as that of a single name is: in words, or as a JSON line on stderr.
 * @throws the error itself when there is one name; else ReportedError with the first failure's exit code
 */
export async function forEachName<Result>(
  context: CommandContext,
  names: readonly string[],
  { call, text, advice = () => undefined }: NamedWork<Result>,
): Promise<void> {
  let exitCode: number | undefined;
  for (const name of names) {
    context.throwIfInterrupted();
    try {
      const result = await call(name);
      if (!context.json) await context.print(`${escapeControls(text(result))}\n`);
      else if (names.length === 1) await context.printJson(result);
      else await context.printJsonLine(result);
    } catch (error) {
      if (names.length === 1 || context.host.interrupted.aborted) throw error;
      const failed = context.report(advised(error, advice, context), name);
      exitCode ??= failed;
    }
  }
  if (exitCode !== undefined) throw new ReportedError(exitCode);
}
