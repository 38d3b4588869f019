/** Runs what a command does: with a context of its own, and errors said. */
import { CommandContext, type GlobalOptions } from "./context.ts";
import { exitCodes } from "./exit-codes.ts";
import { needsHelp, UsageError, whereHelpIs } from "./failure.ts";
import type { CliHost } from "./host.ts";
import type { Client } from "./transport/client.ts";

export interface ActionRun {
  readonly options: GlobalOptions;
  /** How the command is called: `svc app logs`. */
  readonly line: string;
  /** The app that the command line names first, for the next step that an error suggests. */
  readonly app: string | undefined;
  /** Opens the service layer in this process. */
  readonly openInProcess: (host: CliHost) => Promise<Client>;
}

/** @returns the exit code */
export async function runAction(
  host: CliHost,
  { options, line, app, openInProcess }: ActionRun,
  action: (context: CommandContext) => Promise<void>,
): Promise<number> {
  await using context = new CommandContext(host, options, () => openInProcess(host));
  try {
    if (options.quiet === true && options.columns !== undefined)
      throw new UsageError("--quiet is the first column alone: leave it or --columns out");
    await action(context);
    return exitCodes.ok;
  } catch (error) {
    const exitCode = context.report(error, app);
    if (needsHelp(error) && !context.json) context.note(whereHelpIs(line));
    return exitCode;
  }
}
