/** The result of a check of the host. */
import type { Config } from "../daemon/config.ts";
import type { PathEnvironment } from "../daemon/paths.ts";

export interface Finding {
  /** `problem`: svc does not work as it should; `warning`: something of it does not; `ok`: nothing to do. */
  readonly state: "ok" | "warning" | "problem";
  /** One sentence; what is not in order says what to do. */
  readonly text: string;
}

/** The host as a daemon with this configuration would find it. */
export interface ExaminedHost {
  readonly config: Config;
  /** Who runs the check, and would run the daemon. */
  readonly uid: number;
  readonly env: PathEnvironment["env"];
  /** The socket on which a daemon answers. */
  readonly servedAt: string | undefined;
  /** The addresses that this daemon listens on, or should; empty unless the caller is root there. */
  readonly listeners?: readonly ServedListener[];
}

export interface ServedListener {
  readonly kind: string;
  readonly address: string;
  readonly state: string;
  readonly reason: string;
}

/** One assumption of svc's. Throws for what it did not expect, which is a problem, too. */
export type Check = (place: ExaminedHost) => Promise<Finding> | Finding;

export const ok = (text: string): Finding => ({ state: "ok", text });
export const warning = (text: string): Finding => ({ state: "warning", text });
export const problem = (text: string): Finding => ({ state: "problem", text });
