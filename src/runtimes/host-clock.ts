/** The time zone of the host: no secret, and root's own, so everybody's containers may read it. */
import { mayAccess } from "../lib/may-access.ts";

export const hostClock: ReadonlySet<string> = new Set(["/etc/localtime", "/etc/timezone"]);

/** Those files that this host does not have: many projects mount both, and do well without. */
export async function missingClock(): Promise<ReadonlySet<string>> {
  const missing = new Set(hostClock);
  for (const path of hostClock) {
    if (await mayAccess(path)) missing.delete(path);
  }
  return missing;
}
