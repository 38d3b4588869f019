/**
 * Directories that an app's containers mount. The engine resolves their paths as root at every start of a container,
 * so the daemon owns their parents while the app may run: nobody can rename them.
 */
import { realpath } from "node:fs/promises";
import { relative } from "node:path";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { isBelow, isInside } from "../../lib/paths.ts";
import type { Bind, PolicyOptions } from "./container-policy.ts";
import { entryType } from "../entry-type.ts";
import type { RunnableApp } from "../runnable-app.ts";

/** Limits of a mount source: the daemon owns each directory on the way to it. Longer paths do not exist (PATH_MAX). */
const bounds = { pathLength: 4_095, levels: 64 };

/**
 * Takes ownership of the parents of these binds, and returns the parents of other binds to their owner.
 * @param binds those outside the app's directory are ignored
 * @returns a function for the type of each mount source, by its path in the app's directory, as the daemon sees it
 * @throws SvcError `denied` if a mount is inside a directory that the owner can write to, or its path contains a
 *   symlink
 */
export async function holdMounts(
  userHelpers: Pick<UserHelpers, "as" | "tree" | "selfUid">,
  app: Pick<RunnableApp, "directory" | "uid">,
  binds: readonly Bind[],
): Promise<PolicyOptions["typeOf"]> {
  // Root controls the path down to the app's directory, so only the store's location may contain symlinks.
  const roots = [app.directory, await realpath(app.directory).catch(() => app.directory)];
  const own = binds.flatMap(({ source, readOnly }) => {
    const root = roots.find((directory) => isInside(directory, source));
    return root === undefined ? [] : [{ path: relative(root, source), readOnly }];
  });
  for (const { path } of own) requireShort(path);
  if (app.uid !== userHelpers.selfUid) requireApart(own);
  const tree = await userHelpers.tree(app.directory, app.uid);
  await tree.hold(own.map(({ path }) => path));
  if (app.uid !== userHelpers.selfUid) return (path) => tree.heldType(path);
  const self = await userHelpers.as(app.uid);
  return (path) => entryType(self, app.directory, path);
}

function requireShort(path: string): void {
  const { length } = path;
  const excess =
    length > bounds.pathLength
      ? `is ${length} characters long, more than ${bounds.pathLength}`
      : path.split("/").length > bounds.levels
        ? `is more than ${bounds.levels} directories deep`
        : undefined;
  if (excess === undefined) return;
  throw new SvcError("denied", `the mount source ${path.slice(0, 64)}… ${excess}; use a shorter path`);
}

/** A user who can write to a directory can rename its entries. */
function requireApart(binds: readonly { path: string; readOnly: boolean }[]): void {
  const writable = new Set(binds.filter(({ readOnly }) => !readOnly).map(({ path }) => path));
  const rooted = (path: string): string => (path === "" ? "/" : `/${path}/`);
  // Sorted with a slash at the end, a path comes right before those inside it: comparing all would take too long.
  const sorted = [...new Set(binds.map(({ path }) => path))].sort((a, b) => (rooted(a) < rooted(b) ? -1 : 1));
  for (const [at, outer] of sorted.entries()) {
    const inner = sorted[at + 1];
    if (inner === undefined || !writable.has(outer) || !isBelow(rooted(outer), rooted(inner))) continue;
    throw new SvcError(
      "denied",
      `${inner} is a mount inside ${outer || "the app's directory"}, which is mounted writable; ` +
        `mount the outer one read-only, or move the inner one out of it`,
    );
  }
}
