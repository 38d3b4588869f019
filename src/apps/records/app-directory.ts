import { SvcError } from "../../errors.ts";
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
