/** Has the images of a project be here. */
import { relative } from "node:path";
import type { AppImages } from "../docker/app-images.ts";
import type { RunnableApp, RuntimeWork } from "../runtime.ts";
import type { RunnableProject } from "./compose-document.ts";

/** @throws SvcError `build_failed`, `denied` */
export async function buildProject(
  images: AppImages,
  app: RunnableApp,
  { builds }: Pick<RunnableProject, "builds">,
  work: RuntimeWork,
): Promise<void> {
  for (const { service, ...source } of builds) {
    const context = relative(app.directory, source.context);
    await images.build(app, { ...source, context }, work, service);
  }
}

/** Of those that were built here, somebody may have removed one. */
export async function buildMissing(
  images: AppImages,
  app: RunnableApp,
  { builds }: Pick<RunnableProject, "builds">,
): Promise<void> {
  for (const build of builds) {
    if ((await images.inspect(images.builtTag(app, build.service))) !== undefined) continue;
    await buildProject(images, app, { builds: [build] }, {});
  }
}

export async function pullMissing(
  images: AppImages,
  app: RunnableApp,
  { pulls }: Pick<RunnableProject, "pulls">,
  work: RuntimeWork,
): Promise<void> {
  for (const reference of pulls) {
    if ((await images.inspect(reference, work.signal)) !== undefined) continue;
    await images.pull(app.ownerUid, reference, work);
  }
}
