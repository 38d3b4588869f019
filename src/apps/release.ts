/** Laying a version of a package out in an app's directory and building it there, all with the identity of the app. */
import { basename, dirname, join } from "node:path";
import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { Identities } from "../identity/identities.ts";
import type { ResolvedPackage } from "../packages/resolved-package.ts";
import { manifestFileName, type Command } from "../packages/manifest.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";
import { prepareStep } from "../runtimes/app-environment.ts";
import { appTree, checkoutOf } from "../runtimes/app-tree.ts";
import { fenced, isRefusal, raiseFence } from "./build-fence.ts";
import type { WorkOptions } from "./progress.ts";

/** Lines of a failed command that its error carries. */
const keptLines = 20;

/** What steps are run with. */
export interface StepTools {
  identities: Identities;
  /** Environment of every step, beside what the manifest says. */
  buildEnv: Readonly<Record<string, string>>;
  /** Where they find programs. */
  programDirs: readonly string[];
}

/** Exports the package into the app's checkout, makes the directories that its manifest names, and runs its build steps. */
export async function layOutRelease(
  tools: StepTools,
  app: RunnableApp,
  resolved: ResolvedPackage,
  work: WorkOptions,
): Promise<void> {
  await exportRelease(tools, app, resolved, work);
  await build(tools, app, work);
}

/** {@link layOutRelease} without the building. */
async function exportRelease(
  tools: StepTools,
  app: RunnableApp,
  resolved: ResolvedPackage,
  { signal, onProgress = () => undefined }: WorkOptions,
): Promise<void> {
  onProgress({ step: "export", message: `Laying out ${resolved.manifest.name} ${resolved.version}` });
  const tree = await tools.identities.tree(app.directory, app.uid);
  const checkout = checkoutOf(app);
  await tree.makeDirs([checkout]);
  await resolved.exportTo(app.uid, app.directory, checkout, { signal });
  // It came with the mode that the package's directory has.
  await tree.close(checkout);
  const volumes = app.manifest.volumes.map((volume) => join(appTree.volumes, volume.path));
  await tree.makeDirs([appTree.data, appTree.logs, appTree.volumes, ...volumes]);
}

/**
 * Lays a version out beside the one that the app is, and builds it there where it can be moved afterwards.
 * @returns whether it is built; otherwise it is as it came, and {@link buildInPlace} does once it is in its place
 */
export async function layOutBeside(
  tools: StepTools,
  next: RunnableApp,
  resolved: ResolvedPackage,
  work: WorkOptions,
): Promise<boolean> {
  const { clone } = next.manifest;
  await exportRelease(tools, next, resolved, work);
  if (buildSteps(next).length === 0) return true;
  if (clone === "rebuild" || buildSteps(next).some(namesPlaces)) return false;
  await build(tools, next, work);
  if (clone === "copy" || (await canMove(tools, next, work))) return true;
  // It would look for its own where nothing is any more; and a build that finds what was made elsewhere may refuse to go on.
  await (await tools.identities.tree(next.directory, next.uid)).remove(checkoutOf(next));
  await exportRelease(tools, next, resolved, work);
  return false;
}

/** Has what was built in a checkout know the place that it is moved to. @returns whether all of it does */
async function canMove(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<boolean> {
  if (!(await moveEnvironments(tools, app, work))) return false;
  const identity = await tools.identities.as(app.uid);
  const { from } = placesOf(app);
  const options = { cwd: join(app.directory, checkoutOf(app)), signal: work.signal };
  // Of texts: programs name the place of their sources, too, and never look for it. Nor does what package managers note.
  const grep = ["grep", "-rqIF", "--exclude-dir=node_modules", "-e", from, "."];
  if ((await identity.runCommand(grep, options)).exitCode !== 1) return false;
  const others = ["-name", "node_modules", "-prune", "-o"];
  const links = ["find", ".", ...others, "-lname", `*${from}*`, "-print", "-quit"];
  return (await identity.runCommand(links, options)).stdout === "";
}

/** Where a checkout is, and where it will be, by the end of their paths: the store may be called otherwise, too. */
function placesOf(app: RunnableApp): { from: string; to: string } {
  const place = `/${basename(app.directory)}`;
  return { from: `${place}/${checkoutOf(app)}`, to: `${place}/${appTree.repo}` };
}

/** Whether a step is told where something of the app is: it may write there, or into what it makes. */
function namesPlaces(step: Command): boolean {
  return /\$\{(?:repo|data|volumes\.)|SVC_(?:APP|DATA)_DIR/.test(JSON.stringify(step));
}

/**
 * Has the virtual environments of Python in a checkout name the place that it is moved to: their scripts hold their path.
 * @returns whether all of them could be changed
 */
async function moveEnvironments(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<boolean> {
  const identity = await tools.identities.as(app.uid);
  const { from, to } = placesOf(app);
  const grep = ["grep", "-rlIZF", "-e", from, "."];
  const sed = ["sed", "-i", "-e", `s|${escaped(from, /[\\.*[\]^$|]/g)}|${escaped(to, /[\\&|]/g)}|g`, "--"];
  for (const path of await virtualEnvironments(identity, app, work)) {
    const options = { cwd: join(app.directory, path), signal: work.signal };
    const { stdout } = await identity.runCommand(grep, options);
    const files = stdout.split("\0").filter((file) => file !== "");
    if (files.length === 0) continue;
    if ((await identity.runCommand([...sed, ...files], options)).exitCode !== 0) return false;
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
 * Builds a copy of a checkout again where what was built knows the path it was built at: where the manifest says so, or
 * says nothing and there are virtual environments of Python, which go first.
 */
export async function rebuildCopy(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<void> {
  const { clone } = app.manifest;
  if (clone === "copy" || buildSteps(app).length === 0) return;
  const identity = await tools.identities.as(app.uid);
  if (clone === undefined && (await virtualEnvironments(identity, app, work)).length === 0) return;
  await buildInPlace(tools, app, work);
}

/** Builds a checkout where it stays, without what knows another place. @throws SvcError `build_failed` */
export async function buildInPlace(tools: StepTools, app: RunnableApp, work: WorkOptions): Promise<void> {
  const identity = await tools.identities.as(app.uid);
  for (const path of await virtualEnvironments(identity, app, work))
    await identity.removeTree(app.directory, path);
  await build(tools, app, work);
}

/** Paths of virtual environments near the root of the checkout, which is where builds make them. */
async function virtualEnvironments(
  identity: Identity,
  app: RunnableApp,
  { signal }: WorkOptions,
): Promise<string[]> {
  const mark = "pyvenv.cfg";
  const { directory } = app;
  const checkout = checkoutOf(app);
  const find = ["find", checkout, "-maxdepth", "3", "-type", "f", "-name", mark, "-print"];
  const { stdout } = await identity.runCommand(find, { cwd: directory, signal });
  const found = stdout.split("\n").filter((path) => path.endsWith(`/${mark}`));
  return found.map(dirname).filter((path) => path !== checkout);
}

/**
 * Runs a command of the manifest in the checkout.
 * @throws SvcError `build_failed` with its last lines when it does not exit with 0, or not in time; `canceled`
 */
export async function runStep(
  { identities, buildEnv, programDirs }: StepTools,
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
    if (lastLines.length > keptLines) lastLines.shift();
    onProgress({ step: stepName, message: line });
  };
  const identity = await identities.as(app.uid);
  const fence = await raiseFence(identity, app, programDirs);
  const failed = (end: string, payload: { exitCode?: number; signal: string }): SvcError<"build_failed"> => {
    const hint = fence.refusal !== undefined && isRefusal(lastLines) ? `; ${fence.refusal}` : "";
    const message = `the ${stepName} step "${argv.join(" ")}" of ${app.manifest.name} ${end}${hint}`;
    return new SvcError("build_failed", message, { payload: { ...payload, lastLines } });
  };
  const result = await fenced(identity, app, fence, () =>
    identity.runCommand(argv, {
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
