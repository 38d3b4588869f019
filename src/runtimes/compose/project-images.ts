/** Builds and pulls the images of a project. */
import { relative } from "node:path";
import type { AppImages } from "../docker/app-images.ts";
import type { RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { Usage } from "../containers/container-policy.ts";
import { requireBoundedImage, usesOfImage } from "../containers/image-bounds.ts";
import { requireSlowChecks } from "../containers/image-health.ts";
import type { RunnableProject, ServiceBuild } from "./compose-document.ts";
import { isSet, recordOf, textOf, textsOf } from "./compose-values.ts";
import { copiesOf } from "./project-networks.ts";

type Builds = Pick<RunnableProject, "builds" | "ownImages">;

/** @throws SvcError `build_failed`, `denied` */
export async function buildProject(
  images: AppImages,
  app: RunnableApp,
  { builds, ownImages }: Builds,
  work: RuntimeWork,
): Promise<void> {
  const placed = builds.map((build) => ({ ...build, context: relative(app.directory, build.context) }));
  for (const { service, ...source } of await images.inBuildOrder(app, placed, ownImages)) {
    await images.build(app, { ...source, ownImages }, work, service);
  }
}

/** Builds images that were built before and removed since. */
export async function buildMissing(
  images: AppImages,
  app: RunnableApp,
  { builds, ownImages }: Builds,
  work: RuntimeWork,
): Promise<void> {
  const missing: ServiceBuild[] = [];
  for (const build of builds) {
    if ((await images.inspect(images.builtTag(app, build.service))) === undefined) missing.push(build);
  }
  await buildProject(images, app, { builds: missing, ownImages }, work);
}

export async function pullMissing(
  images: AppImages,
  app: RunnableApp,
  { pulls }: Pick<RunnableProject, "pulls">,
  work: RuntimeWork,
): Promise<void> {
  for (const reference of pulls) {
    await images.obtain(app.ownerUid, reference, work);
  }
}

/** What services inherit from their images, if the images exist here. */
export async function imageUses(images: AppImages, document: JsonObject): Promise<{ uses: Usage }[]> {
  const uses: { uses: Usage }[] = [];
  for (const service of Object.values(recordOf(document["services"])).map(recordOf)) {
    const image = await images.inspect(textOf(service["image"]));
    if (image !== undefined) uses.push({ uses: usesOfImage(image, copiesOf(service)) });
  }
  return uses;
}

/** @throws SvcError `denied` as {@link requireBoundedImage} and {@link requireSlowChecks} */
export async function requireSlowImages(images: AppImages, document: JsonObject): Promise<void> {
  for (const service of Object.values(recordOf(document["services"])).map(recordOf)) {
    const reference = textOf(service["image"]);
    const { test, disable, interval, start_interval: startInterval } = recordOf(service["healthcheck"]);
    const image = await images.inspect(reference);
    if (image === undefined) continue;
    requireBoundedImage(image, reference);
    requireSlowChecks(image, reference, {
      isOff: isSet(disable) || textsOf(test)[0] === "NONE",
      ...{ hasInterval: isSet(interval), hasStartInterval: isSet(startInterval), hasTest: isSet(test) },
    });
  }
}
