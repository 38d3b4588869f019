/** How early a thread or a process gets a processor. */
import { getPriority, setPriority } from "node:os";

/**
 * Has one come after others.
 * @param nice of the kernel's 20 steps; one that comes later already stays so, as to raise it is root's alone
 * @param pid by default the calling thread, which on Linux has a priority of its own
 */
export function giveWay(nice: number, pid = 0): void {
  if (getPriority(pid) < nice) setPriority(pid, nice);
}
