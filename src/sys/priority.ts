/** CPU priority of threads and processes. */
import { getPriority, setPriority } from "node:os";

/**
 * Lowers the CPU priority.
 * @param nice lowest nice value (of the kernel's 20 steps); a higher one stays, because only root may raise the
 *   priority
 * @param pid default: the calling thread, which on Linux has its own priority
 */
export function lowerPriority(nice: number, pid = 0): void {
  if (getPriority(pid) < nice) setPriority(pid, nice);
}
