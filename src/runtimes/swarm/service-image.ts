/** The image reference that the nodes of a swarm use. */
import type { ImageInspectInfo } from "dockerode";
import { SvcError } from "../../errors.ts";
import { parseImageReference } from "../../engine/image-reference.ts";
import { builtPrefix } from "../docker/image-names.ts";
import { requireBoundedImage, usesOfImage } from "../containers/image-bounds.ts";
import { ownHealth, requireSlowChecks, type HealthConfig } from "../containers/image-health.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { ServicePlan } from "./stack-plan.ts";

/** Limit of the image's labels, commands and ports, because each task repeats them. */
const maxInheritedBytes = 32 * 1024;

/**
 * The exact image that was checked here, by digest; the ID for an image that was built here, which no node could
 * pull.
 * @param reference the app's name of the image
 */
export function serviceImage(reference: string, local: Pick<ImageInspectInfo, "Id" | "RepoDigests">): string {
  // Some engines assign a digest to images that they built.
  if (reference.startsWith(builtPrefix)) return local.Id;
  const name = fullName(reference);
  const digests = (local.RepoDigests as string[] | null) ?? [];
  return digests.find((digest) => fullName(digest) === name) ?? local.Id;
}

/**
 * Checks the specification rather than the package, because the engine takes values that it does not set from the
 * image.
 * @throws SvcError `denied` as {@link requireBoundedImage} and {@link requireSlowChecks}
 */
export function requireBoundedService(
  { ownerUid }: Pick<RunnableApp, "ownerUid">,
  { spec, image }: Pick<ServicePlan, "spec" | "image">,
  local: ImageInspectInfo,
): void {
  if (ownerUid === 0) return;
  requireBoundedImage(local, image);
  requireShort(local, image);
  const { Healthcheck: check } = spec.TaskTemplate["ContainerSpec"] as { Healthcheck?: HealthConfig };
  requireSlowChecks(local, image, ownHealth(check));
}

/** Limits what each task inherits, because tasks on other nodes cannot be measured. */
function requireShort(local: ImageInspectInfo, reference: string): void {
  const { descriptionBytes } = usesOfImage(local, 1);
  if (descriptionBytes <= maxInheritedBytes) return;
  throw new SvcError(
    "denied",
    `the labels and commands of the image ${reference} are ${descriptionBytes} bytes long, more than ${maxInheritedBytes}, which on a swarm only root's own apps may have; use an image with less`,
  );
}

function fullName(reference: string): string {
  const { host, repository } = parseImageReference(reference);
  return `${host}/${repository}`;
}
