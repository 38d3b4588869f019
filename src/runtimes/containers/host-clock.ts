/** Time zone files of the host, which every user's containers may read: they are public and owned by root. */
import { mayAccess } from "../../sys/may-access.ts";

export const hostClock: ReadonlySet<string> = new Set(["/etc/localtime", "/etc/timezone"]);

/** Time zone files that this host does not have: many projects mount both and work without them. */
export async function missingClock(): Promise<ReadonlySet<string>> {
  const missing = new Set(hostClock);
  for (const path of hostClock) {
    if (await mayAccess(path)) missing.delete(path);
  }
  return missing;
}
