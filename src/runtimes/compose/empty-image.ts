/** An empty image for containers that never run, to access volumes when no image of the app exists. */
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import type Dockerode from "dockerode";

/** Two blocks of zeros: a tar archive without entries. */
const emptyTar = Buffer.alloc(1024);

/** Calls `work` with the ID of an empty image, and removes the image afterwards. */
export async function withEmptyImage<T>(docker: Dockerode, work: (image: string) => Promise<T>): Promise<T> {
  // One element; otherwise the stream would yield single bytes.
  const response = await text(await docker.importImage(Readable.from([emptyTar])));
  const image = /"status":"(sha256:[0-9a-f]{64})"/.exec(response)?.[1];
  if (image === undefined)
    throw new Error(`the container engine did not create the empty image: ${response.slice(0, 200)}`);
  try {
    return await work(image);
  } finally {
    // If the removal fails, a prune removes the image, because it has no name.
    await docker
      .getImage(image)
      .remove({ force: true })
      .catch(() => undefined);
  }
}
