/** An image of nothing, for containers that never run: volumes are to be had where no image of the app is, or not yet. */
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import type Dockerode from "dockerode";

/** Two blocks of zeros: a tar without entries. */
const emptyTar = Buffer.alloc(1024);

/** Does `work` with the id of such an image, which is gone afterwards. */
export async function withEmptyImage<T>(docker: Dockerode, work: (image: string) => Promise<T>): Promise<T> {
  // One element, not its bytes one by one.
  const said = await text(await docker.importImage(Readable.from([emptyTar])));
  const image = /"status":"(sha256:[0-9a-f]{64})"/.exec(said)?.[1];
  if (image === undefined) throw new Error(`the container engine made no empty image: ${said.slice(0, 200)}`);
  try {
    return await work(image);
  } finally {
    // One that is there without a name is the next prune's.
    await docker
      .getImage(image)
      .remove({ force: true })
      .catch(() => undefined);
  }
}
