import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { EntryInfo } from "../identity/identity-work.ts";

/** What is at a path of an app's directory; `symlink` also when a link is on the way there, `undefined`: nothing is. */
export async function entryType(
  identity: Pick<Identity, "stat">,
  root: string,
  path: string,
): Promise<EntryInfo["type"] | undefined> {
  try {
    return (await identity.stat(root, path))?.type;
  } catch (error) {
    if (error instanceof SvcError && error.code === "failed_precondition") return "symlink";
    throw error;
  }
}
