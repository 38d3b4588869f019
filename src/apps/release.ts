/** Laying a version of a package out in an app's directory and building it there, all with the identity of the app. */
import { join } from "node:path";
import { SvcError } from "../errors.ts";
import type { Identities } from "../identity/identity.ts";
import type { ResolvedPackage } from "../packages/package-resolver.ts";
import type { Command } from "../packages/manifest.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";
import { prepareStep } from "../runtimes/app-environment.ts";
import { appTree } from "../runtimes/app-tree.ts";
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
  const { runtime } = app.manifest;
  const steps = runtime.kind === "process" || runtime.kind === "service" ? runtime.build : [];
  for (const step of steps) {
    await runStep(tools, app, step, "build", { ...(signal && { signal }), onProgress });
  }
}

/**
 * Runs a command of the manifest in the checkout.
 * @throws SvcError `build_failed` with its last lines when it does not exit with 0.
 */
export async function runStep(
  { identities, buildEnv }: StepTools,
  app: RunnableApp,
  command: Command,
  stepName: "build" | "migrate" | "dump" | "restore",
  { signal, onProgress = () => undefined }: WorkOptions,
): Promise<void> {
  const { argv, cwd, env } = prepareStep(app, command);
  onProgress({ step: stepName, message: `$ ${argv.join(" ")}` });
  const lines = new LastLines(onProgress, stepName);
  const identity = await identities.as(app.uid);
  const result = await identity.runCommand(argv, {
    cwd,
    env: { ...buildEnv, ...env },
    timeoutMs: command.timeoutMs,
    onLine: (line) => lines.add(line),
    ...(signal && { signal }),
  });
  if (result.exitCode === 0) return;
  const end =
    result.signal === null ? `exited with ${String(result.exitCode)}` : `was ended by ${result.signal}`;
  throw new SvcError(
    "failed_precondition",
    "build_failed",
    `the ${stepName} step "${argv.join(" ")}" of ${app.manifest.name} ${end}`,
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
