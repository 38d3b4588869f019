/** Commands that take several names: one after the other, and a failure does not keep the others from their turn. */
import { advised, type Advice } from "./advice.ts";
import type { CommandContext } from "./context.ts";
import { ReportedError } from "./failure.ts";

export interface NamedWork<Result> {
  /** Resolves with undefined where all is said already. */
  readonly call: (name: string) => Promise<Result | undefined>;
  /** One line for people about what was done. */
  readonly text: (result: Result) => string;
  /** What the command's errors get. */
  readonly advice?: Advice;
}

/**
 * Prints each result as it comes: a line for people, or JSON; of several names one JSON line each. An error is reported
 * as that of a single name is: in words, or as a JSON line on stderr.
 * @throws as {@link oneByOne}
 */
export function forEachName<Result>(
  context: CommandContext,
  names: readonly string[],
  { call, text, advice }: NamedWork<Result>,
): Promise<void> {
  const work = async (name: string): Promise<void> => {
    const result = await call(name);
    if (result === undefined) return;
    if (!context.json) await context.printLine(text(result));
    else if (names.length === 1) await context.printJson(result);
    else await context.printJsonLine(result);
  };
  return oneByOne(context, names, work, advice);
}

/**
 * For work that prints what comes of it itself.
 * @throws the error itself when there is one name; else ReportedError with the first failure's exit code
 */
export async function oneByOne(
  context: CommandContext,
  names: readonly string[],
  work: (name: string) => Promise<void>,
  advice: Advice = () => undefined,
): Promise<void> {
  let exitCode: number | undefined;
  for (const name of names) {
    context.throwIfInterrupted();
    try {
      await work(name);
    } catch (error) {
      if (names.length === 1 || context.host.interrupted.aborted) throw error;
      const failed = context.report(advised(error, advice, context), name);
      exitCode ??= failed;
    }
  }
  if (exitCode !== undefined) throw new ReportedError(exitCode);
}
