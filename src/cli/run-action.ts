/** Runs what a command does: with a context of its own, and errors said. */
import { CommandContext, type GlobalOptions } from "./context.ts";
import { exitCodes } from "./exit-codes.ts";
import { UsageError } from "./failure.ts";
import type { CliHost } from "./host.ts";
import type { Client } from "./transport/client.ts";

export interface ActionRun {
  readonly options: GlobalOptions;
  /** The app that the command line names first, for the next step that an error suggests. */
  readonly app: string | undefined;
  /** Opens the service layer in this process. */
  readonly openInProcess: (host: CliHost) => Promise<Client>;
}

/** @returns the exit code */
export async function runAction(
  host: CliHost,
  { options, app, openInProcess }: ActionRun,
  action: (context: CommandContext) => Promise<void>,
): Promise<number> {
  await using context = new CommandContext(host, options, () => openInProcess(host));
  try {
    if (options.quiet === true && options.columns !== undefined)
      throw new UsageError("--quiet is the first column alone: leave it or --columns out");
    await action(context);
    return exitCodes.ok;
  } catch (error) {
    return context.report(error, app);
  }
}
