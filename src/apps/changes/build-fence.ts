/**
 * Isolates package managers from projects above the checkout. npm works in the nearest parent directory with a `package.json` or
 * `node_modules`; for a package without either that would be a directory above the store, such as a user's project.
 */
import { constants, realpath } from "node:fs/promises";
import { dirname, join, matchesGlob, relative } from "node:path";
import { findProgram } from "../../run-as/find-program.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { mayAccess } from "../../sys/may-access.ts";
import { checkoutOf } from "../../runtimes/app-tree.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";

type Fenced = Pick<RunnableApp, "directory" | "checkout">;

/** Environment of a step. */
export interface Fence {
  readonly env: Record<string, string>;
  /** Set if a project above includes the checkout as a workspace: the reason why npm and yarn 1 fail here, which they do not print. */
  readonly refusal?: string;
}

/**
 * For steps: git finds no repository above the app, and global npm packages stay in the checkout. If a project above includes the
 * checkout as a workspace, npm would work in that project, and only a command line option could prevent that, so npm is made to
 * fail. So is yarn 1 if the checkout has no workspaces of its own. pnpm gets the checkout as its root, later yarns by {@link fenced}.
 */
export async function raiseFence(
  userHelper: UserHelper,
  app: Fenced,
  programDirs: readonly string[],
): Promise<Fence> {
  const { directory } = app;
  const npmConfig = await systemNpmConfig(programDirs);
  const env = {
    GIT_CEILING_DIRECTORIES: directory,
    npm_config_prefix: join(directory, checkoutOf(app), ".npm-global"),
    // npm would also look for this file below the prefix; the host's file sets certificates and the registry for everyone.
    ...(npmConfig !== undefined && { npm_config_globalconfig: npmConfig }),
  };
  // npm uses real paths.
  const repo = join(await realpath(directory), checkoutOf(app));
  const project = await projectAbove(userHelper, repo);
  if (project === undefined) return { env };
  const isRoot = (await workspacesOf(userHelper, repo)).length > 0;
  return {
    env: {
      ...{ ...env, npm_config_workspaces: "false", NPM_CONFIG_WORKSPACE_DIR: repo },
      // Makes yarn 1 fail. The name has npm's prefix, because later yarns reject unknown variables with yarn's prefix.
      ...(!isRoot && { npm_config_workspaces_experimental: "false" }),
    },
    refusal: `${join(project, "package.json")} includes the app as one of its workspaces; exclude the app there with "!${relative(project, repo)}"`,
  };
}

/** The host's global npm configuration: beside its Node, or where distributions put it. */
async function systemNpmConfig(programDirs: readonly string[]): Promise<string | undefined> {
  const node = await findProgram("node", programDirs);
  const besideNode = node === undefined ? [] : [join(await realpath(node), "../../etc/npmrc")];
  for (const path of [...besideNode, "/etc/npmrc"]) {
    if (await mayAccess(path, constants.R_OK)) return path;
  }
  return undefined;
}

async function projectAbove(userHelper: UserHelper, repo: string): Promise<string | undefined> {
  for (let at = dirname(dirname(repo)); ; at = dirname(at)) {
    if (takesIn(await workspacesOf(userHelper, at), relative(at, repo))) return at;
    if (at === dirname(at)) return undefined;
  }
}

/** Matches workspace patterns like npm: the last match decides, and a star does not match names that begin with a dot. */
function takesIn(patterns: readonly string[], path: string): boolean {
  const last = patterns.findLast((pattern) =>
    matchesGlob(path, pattern.replace(/^!*(\.?\/+)?/, "").replace(/\/+$/, "")),
  );
  return last !== undefined && (/^!*/.exec(last)?.[0].length ?? 0) % 2 === 0;
}

/** The `package.json` of the directory, as far as the app's owner may read it. */
async function workspacesOf(userHelper: UserHelper, directory: string): Promise<string[]> {
  try {
    const text = await userHelper.readFile(directory, "package.json");
    const { workspaces } = JSON.parse(text.toString()) as { workspaces?: { packages?: unknown } };
    return [workspaces?.packages ?? workspaces ?? []].flat().filter((pattern) => typeof pattern === "string");
  } catch {
    // There is no file, or npm would not accept it.
    return [];
  }
}

/** Whether the output is that of a package manager that was made to fail. */
export function isRefusal(lines: readonly string[]): boolean {
  return lines.some((line) => /--no-workspaces|"workspaces-experimental"/.test(line));
}

/** Runs a step in a checkout that temporarily looks like a project root to package managers. */
export async function fenced<T>(
  userHelper: UserHelper,
  app: Fenced,
  { refusal }: Fence,
  step: () => Promise<T>,
): Promise<T> {
  const { directory } = app;
  const checkout = checkoutOf(app);
  const [modules, lock] = [join(checkout, "node_modules"), join(checkout, "yarn.lock")];
  const has = async (path: string): Promise<boolean> =>
    (await userHelper.stat(directory, path)) !== undefined;
  const needsLock = refusal !== undefined && !(await has(lock));
  const needsModules = !(await has(modules)) && !(await has(join(checkout, "package.json")));
  if (needsLock) await userHelper.writeFile(directory, lock, "");
  if (needsModules) await userHelper.makeDirs(directory, [modules]);
  try {
    return await step();
  } finally {
    if (needsLock && (await userHelper.stat(directory, lock))?.sizeBytes === 0) {
      await userHelper.removeTree(directory, lock);
    }
    const isEmpty = async (): Promise<boolean> => (await userHelper.list(directory, modules)).length === 0;
    if (needsModules && (await has(modules)) && (await isEmpty())) {
      await userHelper.removeTree(directory, modules);
    }
  }
}
