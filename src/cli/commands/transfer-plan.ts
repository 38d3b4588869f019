/** What stands before an app goes from one node to another. */
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { ifFound } from "../failure.ts";
import { formatBytes } from "../render/units.ts";
import { calls, type App } from "../transport/calls.ts";

export interface TransferPlan {
  readonly id: string;
  /** Bytes that it has. */
  readonly total_bytes: number;
  readonly available_bytes: number;
  /** Whether the other node has an app of that id. */
  readonly exists: boolean;
}

/** @throws SvcError what would be in the way */
export async function planTransfer(
  from: CommandContext,
  to: CommandContext,
  id: string,
): Promise<TransferPlan> {
  const [disk, status, report, there] = await Promise.all([
    from.call(calls.getAppDisk, { id }),
    to.call(calls.getStatus, {}),
    to.call(calls.getDiskReport, {}),
    findApp(to, id),
  ]);
  if (!status.capabilities.includes("backups.upload")) {
    throw new SvcError(
      "not_possible",
      "the daemon there takes no archives: it is older than this svc needs; upgrade it",
    );
  }
  const available = report.filesystem?.available_bytes ?? 0;
  if (disk.total_bytes > available) {
    throw new SvcError(
      "not_possible",
      `${id} has ${formatBytes(disk.total_bytes)}, and there are ${formatBytes(available)} free there`,
    );
  }
  return { id, total_bytes: disk.total_bytes, available_bytes: available, exists: there !== undefined };
}

/** The app of exactly that id, where there is one. */
export async function findApp(node: CommandContext, id: string): Promise<App | undefined> {
  const app = await ifFound(node.call(calls.getApp, { id }));
  // At a terminal an id may be the beginning of another.
  return app?.id === id ? app : undefined;
}

/** @param what would become of it, and where */
export function sayPlan(context: CommandContext, plan: TransferPlan, what: string): Promise<void> {
  const size = `${formatBytes(plan.total_bytes)}, ${formatBytes(plan.available_bytes)} are free there`;
  const text = `${plan.id} ${what} (${size})${plan.exists ? " under another id" : ""}`;
  return context.tell(plan, text);
}
