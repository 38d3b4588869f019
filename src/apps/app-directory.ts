import { SvcError } from "../errors.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppsContext } from "./apps-context.ts";

/**
 * What works on an app's files says that they are gone, and not which of them it misses first.
 * @throws SvcError `not_possible` when somebody has removed its directory
 */
export async function requireDirectory(
  { identities, paths }: Pick<AppsContext, "identities" | "paths">,
  { id, runUid }: Pick<AppRecord, "id" | "runUid">,
): Promise<void> {
  const tree = await identities.tree(paths.appDir(id), runUid);
  if (await tree.isThere()) return;
  const message = `the directory of app "${id}" is gone: restore a backup of it, or remove it and install it again`;
  throw new SvcError("not_possible", message);
}
