import { join } from "node:path";
import { SvcError } from "../../errors.ts";
import { shellWord } from "../../lib/shell-word.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppsContext } from "../apps-context.ts";

/**
 * Reports a missing app directory as such, instead of the first file that is missing in it.
 * @throws SvcError `not_possible` if the directory was removed
 */
export async function requireDirectory(
  { userHelpers, paths }: Pick<AppsContext, "userHelpers" | "paths">,
  { id, runUid }: Pick<AppRecord, "id" | "runUid">,
): Promise<void> {
  const tree = await userHelpers.tree(paths.appDir(id), runUid);
  if (await tree.exists()) return;
  const message = `the directory of app "${id}" is gone: restore a backup of it, or remove it and install it again`;
  throw new SvcError("not_possible", message);
}

/**
 * Checks before a change that the user whom the app runs as can carry it out. A container or a privileged program may
 * have given directories to another user.
 * @param what `cloned` requires that all directories can be read, `removed` that they can be emptied
 * @throws SvcError `not_possible` with the command that restores the owner of the first such directory
 */
export async function requireAccess(
  { userHelpers, paths }: Pick<AppsContext, "userHelpers" | "paths">,
  { id, runUid }: Pick<AppRecord, "id" | "runUid">,
  what: "cloned" | "removed",
): Promise<void> {
  if (runUid === 0) return;
  const directory = paths.appDir(id);
  const helper = await userHelpers.as(runUid);
  const { isComplete, barrier } = await helper.measure(directory, ["."]).catch((error: unknown) => {
    // The owner can end the helper, which must not keep root from a removal.
    if (what === "removed") return { isComplete: false, barrier: undefined };
    throw error;
  });
  if (barrier === undefined || (what === "cloned" && isComplete)) return;
  const { uid, gid } = helper.user;
  const path = shellWord(join(directory, barrier));
  // Not with chown(1): the user can replace a directory on the way with a link after this check.
  const command = `svc file chown -R ${uid}:${gid} ${path}`;
  const message = `app "${id}" cannot be ${what}: ${path} belongs to another user; if it is the app's, run as root: ${command}`;
  throw new SvcError("not_possible", message);
}
