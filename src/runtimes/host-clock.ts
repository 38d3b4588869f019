/** The time zone of the host: no secret, and root's own, so everybody's containers may read it. */
import { access } from "node:fs/promises";

export const hostClock: ReadonlySet<string> = new Set(["/etc/localtime", "/etc/timezone"]);

/** Those files that this host does not have: many projects mount both, and do well without. */
export async function missingClock(): Promise<ReadonlySet<string>> {
  const missing = new Set(hostClock);
  for (const path of hostClock) {
    await access(path).then(
      () => missing.delete(path),
      () => undefined,
    );
  }
  return missing;
}
