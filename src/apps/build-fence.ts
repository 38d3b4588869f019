/**
 * What package managers do not look beyond. npm works in the nearest directory above with a `package.json` or a
 * `node_modules`: in a package without either that would be whatever the store lies in, such as somebody's own project.
 */
import { join } from "node:path";
import type { Identity } from "../identity/identity.ts";
import { appTree } from "../runtimes/app-tree.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";

const marker = join(appTree.repo, "node_modules");

/** For steps: git finds no repository above the app, and what npm installs globally stays in the checkout. */
export function fenceEnvironment({ directory }: Pick<RunnableApp, "directory">): Record<string, string> {
  return {
    GIT_CEILING_DIRECTORIES: directory,
    npm_config_prefix: join(directory, appTree.repo, ".npm-global"),
  };
}

/** Runs a step in a checkout that npm takes for a project's root; nothing of that stays. */
export async function fenced<T>(
  identity: Identity,
  { directory }: Pick<RunnableApp, "directory">,
  step: () => Promise<T>,
): Promise<T> {
  const has = async (path: string): Promise<boolean> => (await identity.stat(directory, path)) !== undefined;
  if ((await has(marker)) || (await has(join(appTree.repo, "package.json")))) return step();
  await identity.makeDirs(directory, [marker]);
  try {
    return await step();
  } finally {
    const isEmpty = (await has(marker)) && (await identity.list(directory, marker)).length === 0;
    if (isEmpty) await identity.removeTree(directory, marker);
  }
}
