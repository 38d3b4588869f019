/** Advice on the next step, for errors of particular commands. */
import type { SvcError, ReasonPayloads } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { missingAppOfJob } from "../abbreviation.ts";
import { shellWord } from "../../lib/shell-word.ts";
import { AdvisedError, asSvcError } from "./failure.ts";
import type { Action, RunCommand } from "../run-command.ts";

/** The next step; undefined if the general advice is enough. */
export type Advice = (error: SvcError, context: CommandContext) => string | undefined;

/** Like `run`, for commands whose errors get such advice. */
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

/** The error, with the next step appended to its message if there is one. */
export function advised(thrown: unknown, advice: Advice, context: CommandContext): unknown {
  const error = asSvcError(thrown);
  if (error === undefined || error instanceof AdvisedError) return thrown;
  const step = advice(error, context);
  return step === undefined ? thrown : new AdvisedError(error, `${error.message}; ${step}`);
}

/** The next step when a command about jobs fails. */
export const adviceOnJobs: Advice = (error, { host }) => {
  const { reason, payload } = error;
  if (reason !== "invalid_request" || host.uid === 0 || missingAppOfJob(error) !== undefined)
    return undefined;
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  const isAbout = (what: string): boolean =>
    violations.some(({ field = "" }) => field === `action.${what}` || field.endsWith(`.action.${what}`));
  // An action type that users' jobs may not use at all is not allowed for an app either.
  if (isAbout("type")) return `run it as root: sudo ${lineOf(host.args)}`;
  return isAbout("app")
    ? `name one of your apps (see: svc ls): ${lineOf(withoutApp(host.args))} --app ID; or run it with sudo`
    : undefined;
};

function lineOf(args: readonly string[]): string {
  return `svc ${args.map(shellWord).join(" ")}`;
}

/** @param args with `--app ID` or without */
function withoutApp(args: readonly string[]): readonly string[] {
  const at = args.indexOf("--app");
  return at === -1 ? args : args.toSpliced(at, 2);
}
