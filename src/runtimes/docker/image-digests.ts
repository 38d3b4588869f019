/** What registries call a local image. */
import type { ImageInspectInfo } from "dockerode";

/** `sha256:…` of every name that registries have for the image. */
export function localDigests({ RepoDigests: names }: Pick<ImageInspectInfo, "RepoDigests">): string[] {
  return ((names as string[] | null) ?? []).flatMap((name) => name.split("@")[1] ?? []);
}

/** What an image is told from others by: the first digest that a registry has for it, else its id. */
export function digestOf(image: Pick<ImageInspectInfo, "Id" | "RepoDigests">): string {
  return localDigests(image)[0] ?? image.Id;
}
