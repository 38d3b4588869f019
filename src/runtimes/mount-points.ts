/**
 * The places that an app's containers mount. The engine follows their paths as root at every start of a container, so what
 * leads there is the daemon's while the app may run: nobody can rename it (decisions 39).
 */
import { realpath } from "node:fs/promises";
import { relative } from "node:path";
import { SvcError } from "../errors.ts";
import type { Identities } from "../identity/identities.ts";
import { isInside } from "../lib/is-inside.ts";
import type { Bind } from "./container-policy.ts";
import type { RunnableApp } from "./runtime.ts";

/**
 * Takes what leads to these binds, and gives back what led to others.
 * @param binds those outside of the app's directory are none of its business
 * @throws SvcError `denied` where the owner writes to a directory that another mount lies in, or a link is on the way
 */
export async function holdMounts(
  identities: Pick<Identities, "tree" | "selfUid">,
  app: Pick<RunnableApp, "directory" | "uid">,
  binds: readonly Bind[],
): Promise<void> {
  // The path itself is root's down to the app's directory: only the store's own place may lead through links.
  const roots = [app.directory, await realpath(app.directory).catch(() => app.directory)];
  const own = binds.flatMap(({ source, readOnly }) => {
    const root = roots.find((directory) => isInside(directory, source));
    return root === undefined ? [] : [{ path: relative(root, source), readOnly }];
  });
  if (app.uid !== identities.selfUid) requireApart(own);
  const tree = await identities.tree(app.directory, app.uid);
  await tree.hold(own.map(({ path }) => path));
}

/** Who writes to a directory can rename what is in it. */
function requireApart(binds: readonly { path: string; readOnly: boolean }[]): void {
  for (const { path: outer, readOnly } of binds) {
    if (readOnly) continue;
    const inner = binds.find(({ path }) => path !== outer && isInside(`/${outer}`, `/${path}`));
    if (inner === undefined) continue;
    throw new SvcError(
      "denied",
      `${inner.path} is mounted by itself and lies in ${outer || "the app's directory"}, which is mounted to be written to: ` +
        `mount the outer one read-only, or keep the inner one beside it`,
    );
  }
}
