/** All attacks on one daemon, one after the other. */
import { readFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { TokenService } from "../../gen/svc/v1/token_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { floodWithResets, holdSlowClients, sendBomb, slowClients } from "./attacks.ts";
import { p99During } from "./probe.ts";

export interface Scale {
  /** Slow connections of each kind. */
  readonly connections: number;
  readonly resets: number;
  readonly bombBytes: number;
  /** The latency limit for 99 of 100 calls of the other client. */
  readonly mostP99Ms: number;
}

export interface Finding {
  readonly attack: string;
  readonly text: string;
  readonly isGood: boolean;
}

const restMs = 2_000;
const mostGrownMiB = 150;
/** The timeouts below, and time to close thousands of connections at once on a busy host. */
const mostMs = 20_000;
const limits = "[api.limits]\nheaders_timeout_ms = 3000\nrequest_timeout_ms = 3000\nidle_timeout_ms = 3000\n";

export async function attackAll(scale: Scale): Promise<Finding[]> {
  const { connections, resets, bombBytes, mostP99Ms } = scale;
  await using daemon = await startDaemon({ config: limits });
  const findings: Finding[] = [];
  // The latency on this host without an attack: the baseline for all further checks.
  await p99During(daemon, () => wait(restMs));
  const restP99Ms = await p99During(daemon, () => wait(restMs));
  findings.push({
    attack: "none",
    text: `p99 ${restP99Ms.toFixed(1)} ms`,
    isGood: restP99Ms < mostP99Ms,
  });
  // A separate token, because clients with the same token share one limit.
  const { token } = await daemon.client(TokenService).issueAccessToken({ label: "slow clients" });
  const target = { port: daemon.port, token };
  for (const [name, client] of Object.entries(slowClients)) {
    let left = 0;
    const p99Ms = await p99During(daemon, async () => {
      left = await holdSlowClients(target, client, { count: connections, mostMs });
    });
    findings.push({
      attack: `${connections} ${name}`,
      text: `p99 ${p99Ms.toFixed(1)} ms; ${left} connections were left`,
      isGood: p99Ms < mostP99Ms && left === 0,
    });
  }
  let flood = { sessions: 0, ended: 0 };
  const floodP99Ms = await p99During(daemon, async () => {
    flood = await floodWithResets(daemon, resets);
  });
  findings.push({
    attack: `${resets} streams opened and reset`,
    text: `p99 ${floodP99Ms.toFixed(1)} ms; ${flood.ended} of ${flood.sessions} sessions were ended`,
    isGood: floodP99Ms < mostP99Ms && flood.ended === flood.sessions,
  });
  const before = await residentMiB(daemon);
  const code = await sendBomb(daemon, bombBytes);
  const grownMiB = (await residentMiB(daemon)) - before;
  findings.push({
    attack: `gzip of ${bombBytes / 1024 / 1024} MiB`,
    text: `${code}; the daemon grew by ${grownMiB.toFixed(1)} MiB`,
    isGood: code === "resource_exhausted" && grownMiB < mostGrownMiB,
  });
  return findings;
}

/** Its peak memory so far, as counted by the kernel. */
async function residentMiB({ pid }: TestDaemon): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024;
}
