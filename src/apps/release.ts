/** Laying a version of a package out in an app's directory and building it there, all with the identity of the app. */
import { dirname, join } from "node:path";
import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { Identities } from "../identity/identities.ts";
import type { ResolvedPackage } from "../packages/resolved-package.ts";
import type { Command } from "../packages/manifest.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";
import { prepareStep } from "../runtimes/app-environment.ts";
import { appTree } from "../runtimes/app-tree.ts";
import { fenced, isRefusal, raiseFence } from "./build-fence.ts";
import type { OnProgress, WorkOptions } from "./progress.ts";

/** Lines of a failed command that its error carries. */
const keptLines = 20;

/** What steps are run with. */
export interface StepTools {
  identities: Identities;
  /** Environment of every step, beside what the manifest says. */
  buildEnv: Readonly<Record<string, string>>;
}

/** Exports the package into `repo/`, makes the directories that its manifest names, and runs its build steps. */
export async function layOutRelease(
  tools: StepTools,
  app: RunnableApp,
  resolved: ResolvedPackage,
  { signal, onProgress = () => undefined }: WorkOptions,
): Promise<void> {
  onProgress({ step: "export", message: `Laying out ${resolved.manifest.name} ${resolved.version}` });
  const tree = await tools.identities.tree(app.directory, app.uid);
  await tree.makeDirs([appTree.repo]);
  await resolved.exportTo(app.uid, app.directory, appTree.repo, { ...(signal && { signal }) });
  // It came with the mode that the package's directory has.
  await tree.close(appTree.repo);
  const volumes = app.manifest.volumes.map((volume) => join(appTree.volumes, volume.path));
  await tree.makeDirs([appTree.data, appTree.logs, appTree.volumes, ...volumes]);
  await build(tools, app, { ...(signal && { signal }), onProgress });
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
  const environments = await virtualEnvironments(identity, app.directory, work);
  if (clone === undefined && environments.length === 0) return;
  for (const path of environments) await identity.removeTree(app.directory, path);
  await build(tools, app, work);
}

/** Paths of virtual environments near the root of the checkout, which is where builds make them. */
async function virtualEnvironments(
  identity: Identity,
  directory: string,
  { signal }: WorkOptions,
): Promise<string[]> {
  const mark = "pyvenv.cfg";
  const find = ["find", appTree.repo, "-maxdepth", "3", "-type", "f", "-name", mark, "-print"];
  const { stdout } = await identity.runCommand(find, { cwd: directory, ...(signal && { signal }) });
  const found = stdout.split("\n").filter((path) => path.endsWith(`/${mark}`));
  return found.map(dirname).filter((path) => path !== appTree.repo);
}

/**
 * Runs a command of the manifest in the checkout.
 * @throws SvcError `build_failed` with its last lines when it does not exit with 0.
 */
export async function runStep(
  { identities, buildEnv }: StepTools,
  app: RunnableApp,
  command: Command,
  stepName: "build" | "migrate" | "dump" | "after" | "restore",
  { signal, onProgress = () => undefined }: WorkOptions,
): Promise<void> {
  const { argv, cwd, env } = prepareStep(app, command);
  onProgress({ step: stepName, message: `$ ${argv.join(" ")}` });
  const lines = new LastLines(onProgress, stepName);
  const identity = await identities.as(app.uid);
  const fence = await raiseFence(identity, app);
  const result = await fenced(identity, app, fence, () =>
    identity.runCommand(argv, {
      cwd,
      env: { ...fence.env, ...buildEnv, ...env },
      timeoutMs: command.timeoutMs,
      onLine: (line) => lines.add(line),
      ...(signal && { signal }),
    }),
  );
  if (result.exitCode === 0) return;
  const end =
    result.signal === null ? `exited with ${String(result.exitCode)}` : `was ended by ${result.signal}`;
  const hint = fence.refusal !== undefined && isRefusal(lines.last) ? `; ${fence.refusal}` : "";
  throw new SvcError(
    "build_failed",
    `the ${stepName} step "${argv.join(" ")}" of ${app.manifest.name} ${end}${hint}`,
    {
      payload: {
        ...(result.exitCode !== null && { exitCode: result.exitCode }),
        signal: result.signal ?? "",
        lastLines: lines.last,
      },
    },
  );
}

/** Passes lines on and keeps the last ones. */
class LastLines {
  readonly last: string[] = [];
  readonly #onProgress: OnProgress;
  readonly #step: string;

  constructor(onProgress: OnProgress, step: string) {
    this.#onProgress = onProgress;
    this.#step = step;
  }

  add(line: string): void {
    this.last.push(line);
    if (this.last.length > keptLines) this.last.shift();
    this.#onProgress({ step: this.#step, message: line });
  }
}
