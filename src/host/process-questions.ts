/** What the host's thread is asked and answers; everything survives structured cloning. */
import type { SampledRun } from "../runtimes/process/run-membership.ts";

/** By what the processes of apps are known. */
export interface KnownApps {
  /** The runs of apps, whose processes are told by session, cookie and descent. */
  readonly runs: readonly SampledRun[];
  /** Ids of apps by the control group that systemd keeps all their processes in. */
  readonly controlGroups: ReadonlyMap<string, string>;
}

export interface HostQuestion extends KnownApps {
  readonly kind: keyof HostAnswers;
}

/** Whose a process is, as far as the kernel tells. */
export interface ProcessOwner {
  readonly pid: number;
  readonly name: string;
  readonly uid: number;
  /** The container that it runs in, by whole id. */
  readonly containerId?: string;
  /** The app that it is of. */
  readonly appId?: string;
}

export interface HostProcess extends ProcessOwner {
  readonly parentPid: number;
  /** At most 4 KiB. */
  readonly command: string;
  /** Of one processor. */
  readonly cpuPercent: number;
  readonly rssBytes: number;
  /** The kernel's letter. */
  readonly state: string;
  readonly startTicks: number;
  readonly isKernelThread: boolean;
}

export interface HostSocket {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  /** Who made it. */
  readonly uid: number;
  /** Absent for the kernel's own, and for what another namespace holds. */
  readonly owner?: ProcessOwner;
}

export interface HostAnswers {
  /** Every process, kernel threads included. */
  readonly processes: readonly HostProcess[];
  /** Every socket that waits for others, by port, protocol, address and process. */
  readonly sockets: readonly HostSocket[];
}
