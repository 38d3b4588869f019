/** Checks out a version of a package in an app's directory and builds it there, as the app's user. */
import { basename, dirname, join } from "node:path";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { ResolvedPackage } from "../../packages/resolved-package.ts";
import { manifestFileName, type Command } from "../../packages/manifest/manifest.ts";
import type { RunnableApp } from "../../runtimes/runnable-app.ts";
import { prepareStep } from "../../runtimes/app-environment.ts";
import { appTree, checkoutOf } from "../../runtimes/app-tree.ts";
import { fenced, isRefusal, raiseFence } from "./build-fence.ts";
import type { WorkOptions } from "../../work/progress.ts";

/** Number of lines of a failed command that its error contains. */
const maxErrorLines = 20;

/** Environment of steps. */
export interface StepTools {
  userHelpers: UserHelpers;
  /** Additional environment of every step. */
  buildEnv: Readonly<Record<string, string>>;
  /** Directories in which steps find programs. */
  programDirs: readonly string[];
}

/** Exports the package into the app's checkout, creates the directories of its manifest, and runs its build steps. */
export async function checkOutRelease(
  tools: StepTools,
  app: RunnableApp,
  resolved: ResolvedPackage,
  work: WorkOptions,
): Promise<void> {
  await exportRelease(tools, app, resolved, work);
  await build(tools, app, work);
}

/** {@link checkOutRelease} without the build. */
async function exportRelease(
  tools: StepTools,
  app: RunnableApp,
  resolved: ResolvedPackage,
  { signal, onProgress = () => undefined }: WorkOptions,
): Promise<void> {
  onProgress({ step: "export", message: `Unpacking ${resolved.manifest.name} ${resolved.version}` });
  const tree = await tools.userHelpers.tree(app.directory, app.uid);
  const checkout = checkoutOf(app);
  await tree.makeDirs([checkout]);
  await resolved.exportTo(app.uid, app.directory, checkout, {
    signal,
    ...(app.adopted && { exclude: app.adopted.leftOut }),
  });
  // The export gave the checkout the mode of the package's directory.
  await tree.close(checkout);
  const volumes = app.manifest.volumes.map((volume) => join(appTree.volumes, volume.path));
  await tree.makeDirs([appTree.data, appTree.logs, appTree.volumes, ...volumes]);
}

/**
 * Checks a version out beside the current one, and builds it there if it can be moved afterwards.
 * @returns whether it was built; otherwise call {@link buildInPlace} after it was moved into place
 */
export async function checkOutBeside(
  tools: StepTools,
  next: RunnableApp,
  resolved: ResolvedPackage,
  work: WorkOptions,
): Promise<boolean> {
  const { clone } = next.manifest;
  await exportRelease(tools, next, resolved, work);
  if (buildSteps(next).length === 0) return true;
  if (clone === "rebuild" || buildSteps(next).some(usesPaths)) return false;
  await build(tools, next, work);
  if (clone === "copy" || (await canMove(tools, next, work))) return true;
  // After the move its paths would be invalid, and a build may fail if it finds files from another path.
  await (await tools.userHelpers.tree(next.directory, next.uid)).remove(checkoutOf(next));
  await exportRelease(tools, next, resolved, work);
  return false;
}

/** Rewrites paths in a built checkout for the move. @returns whether all of them could be rewritten */
async function canMove(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<boolean> {
  if (!(await moveEnvironments(tools, app, work))) return false;
  const userHelper = await tools.userHelpers.as(app.uid);
  const { from } = pathsOf(app);
  const options = { cwd: join(app.directory, checkoutOf(app)), signal: work.signal };
  // Only in text files: binaries and notes of package managers also contain source paths, but do not use them.
  const grep = ["grep", "-rqIF", "--exclude-dir=node_modules", "-e", from, "."];
  if ((await userHelper.runCommand(grep, options)).exitCode !== 1) return false;
  const others = ["-name", "node_modules", "-prune", "-o"];
  const links = ["find", ".", ...others, "-lname", `*${from}*`, "-print", "-quit"];
  return (await userHelper.runCommand(links, options)).stdout === "";
}

/** The old and the new path of a checkout by their last parts, as the store may have other names. */
function pathsOf(app: RunnableApp): { from: string; to: string } {
  const target = `/${basename(app.directory)}`;
  return { from: `${target}/${checkoutOf(app)}`, to: `${target}/${appTree.repo}` };
}

/** Whether a step receives a path of the app: it may write there, or write the path into its output. */
function usesPaths(step: Command): boolean {
  return /\$\{(?:repo|data|volumes\.)|SVC_(?:APP|DATA)_DIR/.test(JSON.stringify(step));
}

/**
 * Rewrites Python virtual environments for the move, because their scripts contain their path.
 * @returns whether all of them could be rewritten
 */
async function moveEnvironments(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<boolean> {
  const userHelper = await tools.userHelpers.as(app.uid);
  const { from, to } = pathsOf(app);
  const grep = ["grep", "-rlIZF", "-e", from, "."];
  const sed = ["sed", "-i", "-e", `s|${escaped(from, /[\\.*[\]^$|]/g)}|${escaped(to, /[\\&|]/g)}|g`, "--"];
  for (const path of await virtualEnvironments(userHelper, app, work)) {
    const options = { cwd: join(app.directory, path), signal: work.signal };
    const { stdout } = await userHelper.runCommand(grep, options);
    const files = stdout.split("\0").filter((file) => file !== "");
    if (files.length === 0) continue;
    if ((await userHelper.runCommand([...sed, ...files], options)).exitCode !== 0) return false;
  }
  return true;
}

function escaped(text: string, special: RegExp): string {
  return text.replaceAll(special, (character) => `\\${character}`);
}

function buildSteps({ manifest: { runtime } }: RunnableApp): readonly Command[] {
  return runtime.kind === "process" || runtime.kind === "service" ? runtime.build : [];
}

async function build(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<void> {
  for (const step of buildSteps(app)) await runStep(tools, app, step, "build", work);
}

/**
 * Rebuilds a copied checkout if its build depends on its path: if the manifest says so, or if it says nothing and there are Python
 * virtual environments, which are removed first.
 */
export async function rebuildCopy(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<void> {
  const { clone } = app.manifest;
  if (clone === "copy" || buildSteps(app).length === 0) return;
  const userHelper = await tools.userHelpers.as(app.uid);
  if (clone === undefined && (await virtualEnvironments(userHelper, app, work)).length === 0) return;
  await buildInPlace(tools, app, work);
}

/** Builds a checkout in its final place, after removing parts that depend on another path. @throws SvcError `build_failed` */
export async function buildInPlace(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<void> {
  const userHelper = await tools.userHelpers.as(app.uid);
  for (const path of await virtualEnvironments(userHelper, app, work))
    await userHelper.removeTree(app.directory, path);
  await build(tools, app, work);
}

/** Paths of virtual environments near the root of the checkout, where builds create them. */
async function virtualEnvironments(
  userHelper: UserHelper,
  app: RunnableApp,
  { signal }: WorkOptions,
): Promise<string[]> {
  const mark = "pyvenv.cfg";
  const { directory } = app;
  const checkout = checkoutOf(app);
  const find = ["find", checkout, "-maxdepth", "3", "-type", "f", "-name", mark, "-print"];
  const { stdout } = await userHelper.runCommand(find, { cwd: directory, signal });
  const found = stdout.split("\n").filter((path) => path.endsWith(`/${mark}`));
  return found.map(dirname).filter((path) => path !== checkout);
}

/**
 * Runs a command of the manifest in the checkout.
 * @throws SvcError `build_failed` with its last lines if it does not exit with 0 in time; `canceled`
 */
export async function runStep(
  { userHelpers, buildEnv, programDirs }: StepTools,
  app: RunnableApp,
  command: Command,
  stepName: "build" | "migrate" | "dump" | "after" | "restore",
  { signal, onProgress = () => undefined }: WorkOptions,
): Promise<void> {
  const { argv, cwd, env } = prepareStep(app, command);
  onProgress({ step: stepName, message: `$ ${argv.join(" ")}` });
  const lastLines: string[] = [];
  const onLine = (line: string): void => {
    lastLines.push(line);
    if (lastLines.length > maxErrorLines) lastLines.shift();
    onProgress({ step: stepName, message: line });
  };
  const userHelper = await userHelpers.as(app.uid);
  const fence = await raiseFence(userHelper, app, programDirs);
  const failed = (end: string, payload: { exitCode?: number; signal: string }): SvcError<"build_failed"> => {
    const hint = fence.refusal !== undefined && isRefusal(lastLines) ? `; ${fence.refusal}` : "";
    const message = `the ${stepName} step "${argv.join(" ")}" of ${app.manifest.name} ${end}${hint}`;
    return new SvcError("build_failed", message, { payload: { ...payload, lastLines } });
  };
  const result = await fenced(userHelper, app, fence, () =>
    userHelper.runCommand(argv, {
      cwd,
      env: { ...fence.env, ...buildEnv, ...env },
      timeoutMs: command.timeoutMs,
      onLine,
      signal,
    }),
  ).catch((error: unknown) => {
    const isTooLate = error instanceof SvcError && error.reason === "deadline_exceeded";
    if (!isTooLate || signal?.aborted === true) throw error;
    const timeout = `${command.timeoutMs / 1000} s`;
    const end = `did not end within its timeout of ${timeout}; give it a longer \`timeout\` in ${manifestFileName}`;
    throw failed(end, { signal: "" });
  });
  if (result.exitCode === 0) return;
  const end =
    result.signal === null ? `exited with ${String(result.exitCode)}` : `was ended by ${result.signal}`;
  throw failed(end, {
    ...(result.exitCode !== null && { exitCode: result.exitCode }),
    signal: result.signal ?? "",
  });
}
