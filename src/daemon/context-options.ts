/** The inputs of the composition root, for the daemon and for a CLI that works in-process. */
import type { Clock } from "../lib/clock.ts";
import type { PeerUid } from "../runtimes/process/supervisor-connection.ts";
import type { ListenerStatus } from "../server/http/socket-listeners.ts";
import type { InspectionAhead } from "../store/store.ts";
import type { Config } from "./config.ts";
import type { DaemonLog } from "./log.ts";
import type { Programs } from "./programs.ts";

export interface ContextOptions {
  config: Config;
  /** Reads the configuration file again. */
  reloadConfig: () => Promise<Config>;
  version: string;
  programs: Programs;
  /** The uid of this process. */
  selfUid: number;
  log: DaemonLog;
  /** Returns the uid of the peer of a unix socket, as the kernel reports it. */
  peerUid: PeerUid;
  /** Default: the host's clock. */
  clock?: Clock;
  /** The inspection of the store that `inspectAhead` started. */
  storeAhead?: InspectionAhead | undefined;
  /** Aborts all running calls. */
  shutdownSignal: AbortSignal;
  /** Address of the page for a browser on this host. Default: undefined. */
  pageAddress?: () => string | undefined;
  /** All configured listeners, open or not. Default: none. */
  listeners?: () => readonly ListenerStatus[];
  /** Where the log goes: `journal`, the path of a file, or empty. Default: empty. */
  logDestination?: string;
  /** True for the daemon that owns the store, false for a command that runs in parallel to a daemon. */
  isDaemon?: boolean;
}
