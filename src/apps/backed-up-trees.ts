/** What of an app's directory a backup holds. */
import { join } from "node:path";
import { isInside } from "../lib/is-inside.ts";
import type { Manifest } from "../packages/manifest.ts";
import { appTree } from "../runtimes/app-tree.ts";

/**
 * The checkout with what its build made (its origin may be gone when it is needed), the data, and the volumes that the
 * manifest does not leave out. Paths beneath the app's directory; none lies inside another.
 */
export function backedUpTrees({ volumes }: Pick<Manifest, "volumes">): string[] {
  const kept = volumes.filter(({ backup }) => backup).map(({ path }) => join(appTree.volumes, path));
  const outermost = kept.filter((path) => !kept.some((other) => other !== path && isInside(other, path)));
  return [appTree.repo, appTree.data, ...new Set(outermost)];
}

/** Where archives have volumes of the container engine. */
const engineTree = "engine";

/** The path in an archive of a volume of the engine. */
export function volumeTree(key: string): string {
  return `${engineTree}/${key}`;
}

/** Which volume of the engine a tree of an archive is; `undefined` for one of the app's directory. */
export function volumeOfTree(tree: string): string | undefined {
  return tree.startsWith(`${engineTree}/`) ? tree.slice(engineTree.length + 1) : undefined;
}

/** What the manifest says of a volume of the engine, in an entry of the same name. */
export function volumePolicy(
  { volumes }: Pick<Manifest, "volumes">,
  key: string,
): { backup: boolean; excludes: readonly string[] } {
  return volumes.find(({ name }) => name === key) ?? { backup: true, excludes: [] };
}

/** Patterns for tar(1) of what is left out of them. */
export function backupExcludes({ volumes }: Pick<Manifest, "volumes">): string[] {
  return volumes.flatMap(({ path, backup, excludes }) =>
    backup ? excludes.map((pattern) => join(appTree.volumes, path, pattern)) : [join(appTree.volumes, path)],
  );
}
