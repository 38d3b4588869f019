/** Consequences for users' apps of an upgrade of svc, or of a shorter list of registries. */
import type { UnlistedImage } from "../runtimes/docker/user-images.ts";

/** For readable messages. */
const maxNamed = 8;

/** For the log of the daemon and for `svc doctor`. @returns undefined without such images */
export function unlistedWarning(images: readonly UnlistedImage[]): string | undefined {
  if (images.length === 0) return undefined;
  const named = images.slice(0, maxNamed).map(({ uid, reference }) => `${reference} (uid ${uid})`);
  const more = images.length > maxNamed ? `, and ${images.length - maxNamed} more` : "";
  return `apps of regular users have images from registries that are not in [docker] users_registries: ${named.join(", ")}${more}; these apps run, but get no newer images: add the registries to the list`;
}
