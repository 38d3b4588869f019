/** Requests and responses of the host thread; all of them survive structured cloning. */
import type { SampledRun } from "../../sys/run-membership.ts";

/** How processes of apps are recognized. */
export interface KnownApps {
  /** Runs of apps, whose processes are recognized by session, cookie and descent. */
  readonly runs: readonly SampledRun[];
  /** App IDs by the control group in which systemd keeps all their processes. */
  readonly controlGroups: ReadonlyMap<string, string>;
}

export interface HostQuestion extends KnownApps {
  readonly kind: keyof HostAnswers;
}

/** The owner of a process, as far as the kernel shows it. */
export interface ProcessOwner {
  readonly pid: number;
  readonly name: string;
  readonly uid: number;
  /** Full ID of its container. */
  readonly containerId?: string;
  /** ID of its app. */
  readonly appId?: string;
}

export interface HostProcess extends ProcessOwner {
  readonly parentPid: number;
  /** At most 4 KiB. */
  readonly command: string;
  /** Percent of one CPU. */
  readonly cpuPercent: number;
  readonly rssBytes: number;
  /** The kernel's state letter. */
  readonly state: string;
  readonly startTicks: number;
  readonly isKernelThread: boolean;
}

export interface HostSocket {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  /** The uid that created it. */
  readonly uid: number;
  /** Absent for sockets of the kernel and of other namespaces. */
  readonly owner?: ProcessOwner;
}

export interface HostAnswers {
  /** Every process, kernel threads included. */
  readonly processes: readonly HostProcess[];
  /** Every listening socket, by port, protocol, address and process. */
  readonly sockets: readonly HostSocket[];
}
