/**
 * What package managers do not look beyond. npm works in the nearest directory above with a `package.json` or a
 * `node_modules`: in a package without either that would be whatever the store lies in, such as somebody's own project.
 */
import { constants, realpath } from "node:fs/promises";
import { dirname, join, matchesGlob, relative } from "node:path";
import { findProgram } from "../identity/find-program.ts";
import type { Identity } from "../identity/identity.ts";
import { mayAccess } from "../lib/may-access.ts";
import { checkoutOf } from "../runtimes/app-tree.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";

type Fenced = Pick<RunnableApp, "directory" | "checkout">;

/** What a step runs with. */
export interface Fence {
  readonly env: Record<string, string>;
  /** Where a project above takes the checkout in: why npm, and the first yarn, refuse to work here, which they do not say. */
  readonly refusal?: string;
}

/**
 * For steps: git finds no repository above the app, and what npm installs globally stays in the checkout. Where a project
 * above takes the checkout for a workspace of its own, npm would work in that project instead, and nothing but an option on its
 * command line keeps it from that; it is made to refuse. So is the first yarn where the checkout has no workspaces, which keep
 * it there. pnpm gets the checkout for its root, later yarns by {@link fenced}.
 */
export async function raiseFence(
  identity: Identity,
  app: Fenced,
  programDirs: readonly string[],
): Promise<Fence> {
  const { directory } = app;
  const npmConfig = await systemNpmConfig(programDirs);
  const env = {
    GIT_CEILING_DIRECTORIES: directory,
    npm_config_prefix: join(directory, checkoutOf(app), ".npm-global"),
    // It would look for that behind the prefix, too: who has it say which certificates and which registry is the whole host's.
    ...(npmConfig !== undefined && { npm_config_globalconfig: npmConfig }),
  };
  // npm goes by real paths.
  const repo = join(await realpath(directory), checkoutOf(app));
  const project = await projectAbove(identity, repo);
  if (project === undefined) return { env };
  const isRoot = (await workspacesOf(identity, repo)).length > 0;
  return {
    env: {
      ...{ ...env, npm_config_workspaces: "false", NPM_CONFIG_WORKSPACE_DIR: repo },
      // By this name alone: later yarns refuse to work where a variable of theirs is none that they know.
      ...(!isRoot && { npm_config_workspaces_experimental: "false" }),
    },
    refusal: `${join(project, "package.json")} takes the checkout for a workspace of its own; leave it out there with "!${relative(project, repo)}"`,
  };
}

/** What npm goes by on the whole host: beside its Node, else where distributions have it. */
async function systemNpmConfig(programDirs: readonly string[]): Promise<string | undefined> {
  const node = await findProgram("node", programDirs);
  const besideNode = node === undefined ? [] : [join(await realpath(node), "../../etc/npmrc")];
  for (const path of [...besideNode, "/etc/npmrc"]) {
    if (await mayAccess(path, constants.R_OK)) return path;
  }
  return undefined;
}

async function projectAbove(identity: Identity, repo: string): Promise<string | undefined> {
  for (let at = dirname(dirname(repo)); ; at = dirname(at)) {
    if (takesIn(await workspacesOf(identity, at), relative(at, repo))) return at;
    if (at === dirname(at)) return undefined;
  }
}

/** As npm reads them: of several that match the last one decides. Names that begin with a dot no star stands for. */
function takesIn(patterns: readonly string[], path: string): boolean {
  const last = patterns.findLast((pattern) =>
    matchesGlob(path, pattern.replace(/^!*(\.?\/+)?/, "").replace(/\/+$/, "")),
  );
  return last !== undefined && (/^!*/.exec(last)?.[0].length ?? 0) % 2 === 0;
}

/** Of the project in that directory, as far as the app's owner may read it. */
async function workspacesOf(identity: Identity, directory: string): Promise<string[]> {
  try {
    const text = await identity.readFile(directory, "package.json");
    const { workspaces } = JSON.parse(text.toString()) as { workspaces?: { packages?: unknown } };
    return [workspaces?.packages ?? workspaces ?? []].flat().filter((pattern) => typeof pattern === "string");
  } catch {
    // None there, or none that npm would take for one.
    return [];
  }
}

/** Whether these are the words of a package manager that was made to refuse. */
export function isRefusal(lines: readonly string[]): boolean {
  return lines.some((line) => /--no-workspaces|"workspaces-experimental"/.test(line));
}

/** Runs a step in a checkout that package managers take for a project's root; nothing of that stays. */
export async function fenced<T>(
  identity: Identity,
  app: Fenced,
  { refusal }: Fence,
  step: () => Promise<T>,
): Promise<T> {
  const { directory } = app;
  const checkout = checkoutOf(app);
  const [modules, lock] = [join(checkout, "node_modules"), join(checkout, "yarn.lock")];
  const has = async (path: string): Promise<boolean> => (await identity.stat(directory, path)) !== undefined;
  const needsLock = refusal !== undefined && !(await has(lock));
  const needsModules = !(await has(modules)) && !(await has(join(checkout, "package.json")));
  if (needsLock) await identity.writeFile(directory, lock, "");
  if (needsModules) await identity.makeDirs(directory, [modules]);
  try {
    return await step();
  } finally {
    if (needsLock && (await identity.stat(directory, lock))?.sizeBytes === 0) {
      await identity.removeTree(directory, lock);
    }
    const isEmpty = async (): Promise<boolean> => (await identity.list(directory, modules)).length === 0;
    if (needsModules && (await has(modules)) && (await isEmpty())) {
      await identity.removeTree(directory, modules);
    }
  }
}
