/** How a command gets its context: what it does is written without Commander. */
import type { CommandContext } from "./context.ts";
import type { CliHost } from "./host.ts";
import type { Client } from "./transport/client.ts";

/** What a command does with its arguments and, last, its options. */
export type Action<Args extends readonly unknown[]> = (
  context: CommandContext,
  ...args: Args
) => Promise<void>;

/** Makes an action of Commander's from one of ours: gives it its context and takes care of its errors. */
export type RunCommand = <Args extends readonly unknown[]>(
  action: Action<Args>,
) => (...args: unknown[]) => Promise<void>;

export interface DaemonRun {
  /** Default: the mode's own. */
  readonly configFile: string | undefined;
  /** True: the configuration is read and checked, and nothing is started. */
  readonly checkOnly: boolean;
  readonly stop: AbortSignal;
}

/** Runs the daemon until `stop` aborts. */
export type RunDaemon = (run: DaemonRun) => Promise<void>;

/** The daemon's part in this process, loaded by whoever needs it. */
export interface CliDependencies {
  /** Opens the service layer in this process. */
  readonly openInProcess: (host: CliHost) => Promise<Client>;
  readonly runDaemon: RunDaemon;
}
