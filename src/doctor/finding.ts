/** The result of a check of the host. */
import type { Config } from "../daemon/config.ts";
import type { PathEnvironment } from "../daemon/paths.ts";

export interface Finding {
  /** `problem`: svc does not work; `warning`: a part of svc does not work; `ok`: nothing to do. */
  readonly state: "ok" | "warning" | "problem";
  /** One sentence, which includes the remedy unless the result is `ok`. */
  readonly text: string;
}

/** The host as a daemon with this configuration would find it. */
export interface ExaminedHost {
  readonly config: Config;
  /** The user who runs the check and would run the daemon. */
  readonly uid: number;
  readonly env: PathEnvironment["env"];
  /** The socket on which a daemon responds. */
  readonly servedAt: string | undefined;
  /** Whether this daemon is another user's, whose configuration and files this user may not read. */
  readonly isOthers?: boolean;
  /** The addresses on which this daemon listens or should listen; empty unless the caller is root for that daemon. */
  readonly listeners?: readonly ServedListener[];
}

export interface ServedListener {
  readonly kind: string;
  readonly address: string;
  readonly state: string;
  readonly reason: string;
}

/** One check. An unexpected error counts as a problem. */
export type Check = (host: ExaminedHost) => Promise<Finding> | Finding;

export const ok = (text: string): Finding => ({ state: "ok", text });
export const warning = (text: string): Finding => ({ state: "warning", text });
export const problem = (text: string): Finding => ({ state: "problem", text });
