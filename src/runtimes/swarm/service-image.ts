/** What the nodes of a swarm find an app's image by. */
import type { ImageInspectInfo } from "dockerode";
import { parseImageReference } from "../../docker/image-reference.ts";
import { builtPrefix } from "../docker/foreign-images.ts";

/**
 * The very image that was checked here, by its digest; of one that was built here, which no node could pull, the id.
 * @param reference what the app calls it
 */
export function serviceImage(reference: string, local: Pick<ImageInspectInfo, "Id" | "RepoDigests">): string {
  // Some engines give one that they have built a digest, too.
  if (reference.startsWith(builtPrefix)) return local.Id;
  const name = wholeName(reference);
  const digests = (local.RepoDigests as string[] | null) ?? [];
  return digests.find((digest) => wholeName(digest) === name) ?? local.Id;
}

function wholeName(reference: string): string {
  const { host, repository } = parseImageReference(reference);
  return `${host}/${repository}`;
}
