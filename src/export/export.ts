/** Exports an app to files for another engine's own tools. */
import type { ExportAppRequestTo } from "../../gen/svc/v1/values.ts";
import { SvcError } from "../errors.ts";
import type { PublishOptions } from "../runtimes/containers/published-ports.ts";
import type { ProjectRuntime } from "../runtimes/capabilities.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import { composeProject } from "./compose-project.ts";
import { projectFile, toCompose } from "./compose.ts";
import { toKubernetes } from "./kubernetes.ts";
import { toNomad } from "./nomad.ts";
import { markedApp } from "./project-secrets.ts";
import { toQuadlet } from "./quadlet.ts";
import { dockerProject, type ExportedApp, type Project } from "./workload.ts";

export interface ExportOptions extends PublishOptions {
  /** For compose projects. */
  readonly projects?: Pick<ProjectRuntime, "describe"> | undefined;
}

const writers: Readonly<Record<ExportAppRequestTo, (project: Project) => ExportedApp>> = {
  kubernetes: toKubernetes,
  nomad: toNomad,
  quadlet: toQuadlet,
  compose: toCompose,
};

/**
 * @throws SvcError `not_possible` for an app without containers; `denied` and `package_invalid` for a compose project
 *   that may not run
 */
export async function exportApp(
  app: RunnableApp,
  to: ExportAppRequestTo,
  { projects, ...options }: ExportOptions,
): Promise<ExportedApp> {
  const { runtime } = app.manifest;
  if (runtime.kind === "docker") return written(dockerProject(app, runtime, options), to);
  if (runtime.kind !== "compose" || projects === undefined) {
    const message = `app "${app.id}" runs on the ${runtime.kind} runtime; svc exports packages of the docker and compose runtimes`;
    throw new SvcError("not_possible", message);
  }
  const marked = markedApp(app);
  const project = await projects.describe(marked.app);
  return to === "compose" ? projectFile(marked, project) : written(composeProject(marked, project), to);
}

function written(project: Project, to: ExportAppRequestTo): ExportedApp {
  const { files, notes } = writers[to](project);
  return { files, notes: [...project.notes, ...notes] };
}
