import { SvcError } from "../errors.ts";
import type { UserHelper } from "../run-as/user-helper.ts";
import type { EntryInfo } from "../run-as/user-helper-types.ts";

/**
 * Type of the entry at a path in an app's directory; `symlink` also if a parent of it is a symlink, `undefined` if it
 * does not exist.
 */
export async function entryType(
  userHelper: Pick<UserHelper, "stat">,
  root: string,
  path: string,
): Promise<EntryInfo["type"] | undefined> {
  try {
    return (await userHelper.stat(root, path))?.type;
  } catch (error) {
    if (error instanceof SvcError && error.code === "failed_precondition") return "symlink";
    throw error;
  }
}
