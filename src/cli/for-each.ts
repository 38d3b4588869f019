/** Commands that take several names: handled one after the other; a failure does not stop the rest. */
import { advised, type Advice } from "./output/advice.ts";
import type { CommandContext } from "./context.ts";
import { ifFound, ReportedError, UsageError } from "./output/failure.ts";
import { calls, type App } from "./client/calls.ts";
import { listAllApps } from "./pages.ts";

export interface NamedWork<Result> {
  /** Resolves with undefined if everything is already printed. */
  readonly call: (name: string) => Promise<Result | undefined>;
  /** One line of text about the result. */
  readonly text: (result: Result) => string | Promise<string>;
  /** Advice for the command's errors. */
  readonly advice?: Advice;
}

/**
 * Prints each result when it is available: a line of text, or JSON; for several names, one JSON line each.
 * Errors are reported like those of a single name: as text, or as a JSON line on stderr.
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
    if (!context.json) await context.printLine(await text(result));
    else if (names.length === 1) await context.printJson(result);
    else await context.printJsonLine(result);
  };
  return oneByOne(context, names, work, advice);
}

/**
 * For work that prints its own results.
 * @throws the error itself for a single name; else ReportedError with the exit code of the first failure
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
      const failed = await context.report(advised(error, advice, context), name);
      exitCode ??= failed;
    }
  }
  if (exitCode !== undefined) throw new ReportedError(exitCode);
}

export interface AllOption {
  readonly all?: boolean;
}

/** For a command that takes several IDs or `--all`. @throws UsageError unless the line has either IDs or `--all` */
export async function requireChoice(
  context: CommandContext,
  named: readonly string[],
  { all = false }: AllOption,
): Promise<void> {
  if (all === named.length > 0) throw new UsageError("name the apps, or pass --all");
  if (named.includes("all") && (await ifFound(context.call(calls.getApp, { id: "all" }))) === undefined)
    throw new UsageError('no app "all"; for every app, pass --all');
}

/**
 * The apps of such a command.
 * @param isMeant whether `--all` includes an app; default: all
 * @throws as {@link requireChoice}
 */
export async function chosenIds(
  context: CommandContext,
  named: readonly string[],
  options: AllOption,
  isMeant: (app: App) => boolean = () => true,
): Promise<readonly string[]> {
  await requireChoice(context, named, options);
  if (options.all !== true) return named;
  const found = await listAllApps(context);
  const meant = found.filter(isMeant);
  if (meant.length === 0 && !context.json)
    context.note(found.length === 0 ? "No apps are installed." : "All apps are stopped.");
  return meant.map(({ id }) => id);
}
