/** What another engine needs to run an app, in files that its own tools take. */
import type { ExportAppRequestTo } from "../../gen/svc/v1/words.ts";
import type { PublishOptions } from "../runtimes/published-ports.ts";
import type { RunnableApp } from "../runtimes/runtime.ts";
import { toCompose } from "./compose.ts";
import { toKubernetes } from "./kubernetes.ts";
import { toNomad } from "./nomad.ts";
import { toQuadlet } from "./quadlet.ts";
import { workloadOf, type ExportedApp, type Workload } from "./workload.ts";

const writers: Readonly<Record<ExportAppRequestTo, (workload: Workload) => ExportedApp>> = {
  kubernetes: toKubernetes,
  nomad: toNomad,
  quadlet: toQuadlet,
  compose: toCompose,
};

/** @throws SvcError `not_possible` for an app that is not one container */
export function exportApp(app: RunnableApp, to: ExportAppRequestTo, options: PublishOptions): ExportedApp {
  const workload = workloadOf(app, options);
  const { files, notes } = writers[to](workload);
  return { files, notes: [...workload.notes, ...notes] };
}
