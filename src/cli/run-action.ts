/** Runs the action of a command: creates its context and reports its errors. */
import { CommandContext, type GlobalOptions } from "./context.ts";
import { exitCodes } from "./output/exit-codes.ts";
import { needsHelp, UsageError, helpHint } from "./output/failure.ts";
import type { CliHost } from "./host.ts";
import type { Client } from "./client/client.ts";

export interface ActionRun {
  readonly options: GlobalOptions;
  /** The full name of the command: `svc logs`. */
  readonly line: string;
  /** The first app on the command line, for the command that an error suggests. */
  readonly app: string | undefined;
  /** Whether the command ends only with Ctrl-C, which is not an error then. */
  readonly isEndless: boolean;
  /** Opens the service layer in this process. */
  readonly openInProcess: (host: CliHost) => Promise<Client>;
}

/** @returns the exit code */
export async function runAction(
  host: CliHost,
  { options, line, app, isEndless, openInProcess }: ActionRun,
  action: (context: CommandContext) => Promise<void>,
): Promise<number> {
  await using context = new CommandContext(host, options, () => openInProcess(host));
  try {
    if (options.quiet === true && options.columns !== undefined)
      throw new UsageError("--quiet prints only the first column: use it or --columns");
    if (options.sort !== undefined && context.json)
      throw new UsageError("--sort sorts tables: it cannot be used with --json, --format or -o yaml");
    await action(context);
    return exitCodes.ok;
  } catch (error) {
    if (isEndless && host.interrupted.aborted) return exitCodes.interrupted;
    const exitCode = await context.report(error, app);
    if (needsHelp(error) && !context.json) context.note(helpHint(line));
    return exitCode;
  }
}
