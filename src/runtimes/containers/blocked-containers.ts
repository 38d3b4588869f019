/**
 * Handles containers that the engine cannot start any more: if a start was killed halfway on a host that keeps its
 * mounts, the leftovers block every later start, and the engine does not remove them. Another container of the same
 * configuration can start, so it replaces the blocked container and takes over its volumes. The blocked container is
 * removed as soon as the engine allows it.
 */
import type { ContainerRecord } from "../../engine/container-record.ts";
import { SvcError } from "../../errors.ts";

/** Label that identifies the configuration, image and version of a container. */
export const releaseLabel = "svc.release";

const aside = /-stuck-[0-9a-f]{12}$/;

/** ID of the container whose leftovers prevented its start, from containerd's error message. */
export function blockedContainer(error: unknown): string | undefined {
  if (!(error instanceof SvcError)) return undefined;
  const { message } = error;
  return (/\btask ([0-9a-f]{64}): already exists/.exec(message) ??
    /\bmkdir \S+\/([0-9a-f]{64}): file exists/.exec(message))?.[1];
}

/** New name of a blocked container, which frees its name. */
export function blockedName({ id, name }: Pick<ContainerRecord, "id" | "name">): string {
  return `${name}-stuck-${id.slice(0, 12)}`;
}

export function isRenamed({ name }: Pick<ContainerRecord, "name">): boolean {
  return aside.test(name);
}

/** The release of a container; undefined for a renamed one. */
export function releaseOf(container: Pick<ContainerRecord, "name" | "labels">): string | undefined {
  return isRenamed(container) ? undefined : container.labels[releaseLabel];
}
