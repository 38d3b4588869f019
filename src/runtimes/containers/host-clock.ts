/** Time zone files of the host, which every user's containers may read: they are public and owned by root. */
import { mayAccess } from "../../sys/may-access.ts";

export const clockFiles: ReadonlySet<string> = new Set(["/etc/localtime", "/etc/timezone"]);

/** Time zone files that this host does not have: many projects mount both and work without them. */
export async function missingClockFiles(): Promise<ReadonlySet<string>> {
  const missing = new Set(clockFiles);
  for (const path of clockFiles) {
    if (await mayAccess(path)) missing.delete(path);
  }
  return missing;
}
