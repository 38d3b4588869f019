/** Names and digests of images. */
import type { ImageInspectInfo } from "dockerode";
import { parseImageReference } from "../../engine/image-reference.ts";
import { SvcError } from "../../errors.ts";

/** Prefix of images that svc builds; no registry has this name. */
export const builtPrefix = "svc.local/";

/**
 * @throws SvcError `denied` for an image that svc built for an app, or one named by its ID, which may be another
 *   user's
 */
export function requireAllowedName(image: string): void {
  const isId = /^sha(256|512):/i.test(image);
  if (!image.startsWith(builtPrefix) && !isId) return;
  const what = isId
    ? "the ID of an image, possibly another user's; write its name with a tag"
    : "an image that svc built for an app";
  throw new SvcError("denied", `"${image}" is ${what}`);
}

/** The `sha256:…` digest of each of the image's names in registries. */
export function localDigests({ RepoDigests: names }: Pick<ImageInspectInfo, "RepoDigests">): string[] {
  return ((names as string[] | null) ?? []).flatMap((name) => name.split("@")[1] ?? []);
}

/** Identifies an image: its first digest in a registry, else its ID. */
export function digestOf(image: Pick<ImageInspectInfo, "Id" | "RepoDigests">): string {
  return localDigests(image)[0] ?? image.Id;
}

/**
 * Adds the default tag: without a tag the engine would pull all. @throws SvcError `invalid_argument` for an invalid
 * image name
 */
export function withTag(image: string): string {
  const { tag, digest } = parseImageReference(image);
  return image.endsWith(`:${tag ?? ""}`) || digest !== undefined ? image : `${image}:${tag ?? ""}`;
}
