/** Builds and pulls the images of a project. */
import { notFound, SvcError } from "../../errors.ts";
import type { AppImages } from "../docker/app-images.ts";
import type { RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { Usage } from "../containers/container-policy.ts";
import { requireBoundedImage, usesOfImage } from "../containers/image-bounds.ts";
import { requireSlowChecks } from "../containers/image-health.ts";
import type { RunnableProject } from "./compose-document.ts";
import { isSet, recordOf, textOf, textsOf } from "./compose-values.ts";
import { copiesOf } from "./project-networks.ts";
import type { PullTimes } from "./pull-policy.ts";
import { relativeTo, type ServiceBuild } from "./service-build.ts";

type Builds = Pick<RunnableProject, "builds" | "ownImages">;

/** @throws SvcError `build_failed`, `denied` */
export async function buildProject(
  images: AppImages,
  app: RunnableApp,
  { builds, ownImages }: Builds,
  work: RuntimeWork,
): Promise<void> {
  const placed = builds.map((build) => relativeTo(app.directory, build));
  for (const { service, notes, ...source } of await images.inBuildOrder(app, placed, ownImages)) {
    for (const message of notes) work.onProgress?.({ step: "build", message });
    await images.build(app, { ...source, ownImages }, about(service, work), service);
  }
}

/** Work whose progress names the service. */
function about<Work extends RuntimeWork>(service: string, work: Work): Work {
  const { onProgress } = work;
  return onProgress === undefined
    ? work
    : { ...work, onProgress: (progress) => onProgress({ ...progress, service }) };
}

/** Builds images that were removed since the last build, and those with `pull_policy: build`. */
export async function buildForStart(
  images: AppImages,
  app: RunnableApp,
  { builds, ownImages }: Builds,
  work: RuntimeWork,
): Promise<void> {
  const needed: ServiceBuild[] = [];
  for (const build of builds) {
    const isThere = (await images.inspect(images.builtTag(app, build.service))) !== undefined;
    if (build.isRepeated || !isThere) needed.push(build);
  }
  await buildProject(images, app, { builds: needed, ownImages }, work);
}

export interface PullOptions extends RuntimeWork {
  readonly times: PullTimes;
  /** Whether a failed pull leaves a local image in use, so that apps of a host that boots offline start. Default: no. */
  readonly mayBeOld?: boolean;
}

/** Pulls images as their services' policies require. @throws SvcError as {@link AppImages.pull} */
export async function pullImages(
  images: AppImages,
  app: RunnableApp,
  { pulls }: Pick<RunnableProject, "pulls">,
  { times, mayBeOld = false, ...options }: PullOptions,
): Promise<void> {
  for (const { service, reference, policy } of pulls) {
    const work = about(service, options);
    if (policy === "never") {
      await requirePresent(images, app, reference, work);
      continue;
    }
    const { maxAgeMs } = policy;
    if (maxAgeMs === Infinity || !(await times.isOlder(reference, maxAgeMs))) {
      await images.obtain(app.ownerUid, reference, work);
      continue;
    }
    try {
      await images.pull(app.ownerUid, reference, work);
      if (maxAgeMs > 0) await times.record(reference);
    } catch (error) {
      const isUsable = mayBeOld && (await images.usable(app.ownerUid, reference)) !== undefined;
      if (!isUsable || work.signal?.aborted === true) throw error;
      const why = error instanceof Error ? error.message : String(error);
      const message = `${reference} stays as it is: ${why}`;
      work.onProgress?.({ step: "warning", message });
    }
  }
}

async function requirePresent(
  images: AppImages,
  app: RunnableApp,
  reference: string,
  work: RuntimeWork,
): Promise<void> {
  const image = await images.existing(app.ownerUid, reference, work).catch((error: unknown) => {
    // The same error as for a missing image, so that users cannot find out what others have pulled.
    if (error instanceof SvcError && work.signal?.aborted !== true) return undefined;
    throw error;
  });
  if (image !== undefined) return;
  const message = `image ${reference} is not found on this host, and its pull_policy is "never"; pull it first, or remove pull_policy`;
  throw notFound("image", reference, message);
}

/** Usage that services inherit from their images, if the images exist on this host. */
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
