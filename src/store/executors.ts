/**
 * Executor leases: an operation's row records the process that executes it, and the operation is live as long as
 * exactly that process exists. It needs no heartbeat, so a stopped or swapped-out executor never loses its work.
 */
import { readBootId, readProcessIdentity, type ProcessIdentity } from "../sys/process-identity.ts";
import { isText, isInteger, readDocument, type Fields } from "./row-document.ts";

/** A process in one boot of the host, as stored in `boot_id`, `pid` and `start_ticks` of `operations` and `runs`. */
export interface Executor extends ProcessIdentity {
  bootId: string;
}

const fields: Fields<Executor> = { bootId: isText, pid: isInteger, startTicks: isInteger };

/** Parses an executor that a row stores as JSON. @throws UnreadableRow */
export function readExecutor(text: string): Executor {
  return readDocument<Executor>(text, fields);
}

/** This process as an executor. */
export async function currentExecutor(): Promise<Executor> {
  const [bootId, identity] = await Promise.all([readBootId(), readProcessIdentity(process.pid)]);
  if (identity === undefined) throw new Error(`/proc does not show this process (pid ${process.pid})`);
  return { bootId, ...identity };
}

/** Whether the process still runs: false after it exited, after a reboot, and if another process has its PID now. */
export async function isExecutorAlive(executor: Executor): Promise<boolean> {
  const [bootId, identity] = await Promise.all([readBootId(), readProcessIdentity(executor.pid)]);
  return bootId === executor.bootId && identity?.startTicks === executor.startTicks;
}
