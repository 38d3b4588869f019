/**
 * Executor leases (D25): an operation's row names the process that executes it, and the operation is live for as long
 * as exactly that process exists. No heartbeat, so a stopped or swapped-out executor never loses its work.
 */
import { readBootId } from "../lib/boot-id.ts";
import { readProcessIdentity, type ProcessIdentity } from "../lib/process-identity.ts";
import { isText, isWhole, readDocument, type Fields } from "./row-document.ts";

/** A process in one boot of the host: what `operations` and `runs` keep in `boot_id`, `pid` and `start_ticks`. */
export interface Executor extends ProcessIdentity {
  bootId: string;
}

const fields: Fields<Executor> = { bootId: isText, pid: isWhole, startTicks: isWhole };

/** An executor that a row keeps as JSON. @throws UnreadableRow */
export function readExecutor(text: string): Executor {
  return readDocument<Executor>(text, fields);
}

/** This process as an executor. */
export async function currentExecutor(): Promise<Executor> {
  const [bootId, identity] = await Promise.all([readBootId(), readProcessIdentity(process.pid)]);
  if (identity === undefined) throw new Error(`/proc does not show this process (pid ${process.pid})`);
  return { bootId, ...identity };
}

/** Whether the process still runs: false after it ended, after a reboot, and when another process has its pid now. */
export async function isExecutorAlive(executor: Executor): Promise<boolean> {
  const [bootId, identity] = await Promise.all([readBootId(), readProcessIdentity(executor.pid)]);
  return bootId === executor.bootId && identity?.startTicks === executor.startTicks;
}
