/** The parts of an app's directory that a backup contains. */
import { join } from "node:path";
import { isInside } from "../../lib/paths.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import { appTree } from "../../runtimes/app-tree.ts";

/**
 * The checkout with its build output (its origin may no longer exist at a restore), the data, and the volumes that the manifest does
 * not exclude. Paths below the app's directory; none is inside another.
 */
export function backedUpTrees({ volumes }: Pick<Manifest, "volumes">): string[] {
  const backedUp = volumes.filter(({ backup }) => backup).map(({ path }) => join(appTree.volumes, path));
  const outermost = backedUp.filter(
    (path) => !backedUp.some((other) => other !== path && isInside(other, path)),
  );
  return [appTree.repo, appTree.data, ...new Set(outermost)];
}

/** Directory of engine volumes in archives. */
const engineTree = "engine";

/** The path of an engine volume in an archive. */
export function volumeTree(key: string): string {
  return `${engineTree}/${key}`;
}

/** The engine volume of an archive's tree; `undefined` for a tree of the app's directory. */
export function volumeOfTree(tree: string): string | undefined {
  return tree.startsWith(`${engineTree}/`) ? tree.slice(engineTree.length + 1) : undefined;
}

/** The manifest's entry for an engine volume of the same name. */
export function volumePolicy(
  { volumes }: Pick<Manifest, "volumes">,
  key: string,
): { backup: boolean; excludes: readonly string[] } {
  return volumes.find(({ name }) => name === key) ?? { backup: true, excludes: [] };
}

/** Patterns of excluded files, for tar(1). */
export function backupExcludes({ volumes }: Pick<Manifest, "volumes">): string[] {
  return volumes.flatMap(({ path, backup, excludes }) =>
    backup ? excludes.map((pattern) => join(appTree.volumes, path, pattern)) : [join(appTree.volumes, path)],
  );
}
