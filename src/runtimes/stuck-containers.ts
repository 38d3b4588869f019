/**
 * Containers that the engine cannot start any more: one that was killed in the middle of a start, on a host that keeps its
 * mounts, finds what it left of the container in its way from then on, and does not clear it away. Another container of the
 * same configuration starts, so it takes the place, and the volumes, of such a one, which is removed as soon as the engine
 * lets it.
 */
import type { ContainerRecord } from "../docker/container-record.ts";
import { SvcError } from "../errors.ts";

/** The label that tells the containers of one configuration, image and version from those of others. */
export const releaseLabel = "svc.release";

const aside = /-stuck-[0-9a-f]{12}$/;

/** The id of the container that could not be started as the engine has left something of it; in containerd's words. */
export function stuckContainer(error: unknown): string | undefined {
  if (!(error instanceof SvcError)) return undefined;
  const { message } = error;
  return (/\btask ([0-9a-f]{64}): already exists/.exec(message) ??
    /\bmkdir \S+\/([0-9a-f]{64}): file exists/.exec(message))?.[1];
}

/** What a stuck container is called once another has its name. */
export function asideName({ id, name }: Pick<ContainerRecord, "id" | "name">): string {
  return `${name}-stuck-${id.slice(0, 12)}`;
}

export function isSetAside({ name }: Pick<ContainerRecord, "name">): boolean {
  return aside.test(name);
}

/** The release that a container is of; undefined for one that was set aside. */
export function releaseOf(container: Pick<ContainerRecord, "name" | "labels">): string | undefined {
  return isSetAside(container) ? undefined : container.labels[releaseLabel];
}
