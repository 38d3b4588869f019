/** How an action gets its context. Actions do not depend on Commander. */
import type { CommandContext } from "./context.ts";
import type { CliHost } from "./host.ts";
import type { Client } from "./client/client.ts";

/** The action of a command, with its arguments and, last, its options. */
export type Action<Args extends readonly unknown[]> = (
  context: CommandContext,
  ...args: Args
) => Promise<void>;

/** Turns an action into one for Commander: passes the context and handles errors. */
export type RunCommand = <Args extends readonly unknown[]>(
  action: Action<Args>,
) => (...args: unknown[]) => Promise<void>;

export interface DaemonRun {
  /** Default: the mode's own. */
  readonly configFile: string | undefined;
  /** True: only read and check the configuration. */
  readonly checkOnly: boolean;
  readonly stop: AbortSignal;
}

/** Runs the daemon until `stop` aborts. */
export type RunDaemon = (run: DaemonRun) => Promise<void>;

/** Parts of the daemon for this process, loaded when needed. */
export interface CliDependencies {
  /** Opens the service layer in this process. */
  readonly openInProcess: (host: CliHost) => Promise<Client>;
  readonly runDaemon: RunDaemon;
}
