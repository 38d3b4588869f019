/** What the nodes of a swarm find an app's image by. */
import type { ImageInspectInfo } from "dockerode";
import { parseImageReference } from "../../docker/image-reference.ts";
import { dockerRuntime } from "../docker/app-images.ts";
import type { RunnableApp } from "../runtime.ts";

/**
 * The very image that was checked here, by its digest; of one that was built here, which no node could pull, the id.
 * @param reference what the app calls it
 */
export function serviceImage(
  app: RunnableApp,
  reference: string,
  local: Pick<ImageInspectInfo, "Id" | "RepoDigests">,
): string {
  // Some engines give one that they have built a digest, too.
  if (dockerRuntime(app).image === undefined) return local.Id;
  const name = wholeName(reference);
  const digests = (local.RepoDigests as string[] | null) ?? [];
  return digests.find((digest) => wholeName(digest) === name) ?? local.Id;
}

function wholeName(reference: string): string {
  const { host, repository } = parseImageReference(reference);
  return `${host}/${repository}`;
}
