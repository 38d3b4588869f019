/** Checks new images of regular users: the engine reads the descriptions of all images for each list of images. */
import type { ImageInspectInfo } from "dockerode";
import { descriptionBytes } from "../../engine/engine-objects.ts";
import { formatImageReference, parseImageReference } from "../../engine/image-reference.ts";
import { SvcError } from "../../errors.ts";
import { tooLong } from "../containers/container-policy.ts";
import { excessOfImage } from "../containers/image-bounds.ts";
import type { UserObjects } from "../containers/user-objects.ts";
import type { EngineImages } from "./engine-images.ts";

const removalAttempts = 3;

export class NewImageCheck {
  readonly #images: EngineImages;
  readonly #userObjects: UserObjects;

  constructor(images: EngineImages, userObjects: UserObjects) {
    this.#images = images;
    this.#userObjects = userObjects;
  }

  /**
   * Checks a regular user's image that was just pulled or built, and removes it if it exceeds a limit or cannot be read: the
   * engine reads the descriptions of all images for each list of images.
   * @param before image that the reference named before; it gets the name back
   * @param digest of the pulled image in its registry
   * @throws SvcError `denied`, `too_many`
   */
  async requireBoundedNew(
    ownerUid: number,
    reference: string,
    before?: ImageInspectInfo,
    digest?: string,
  ): Promise<void> {
    if (ownerUid === 0) return;
    let image: ImageInspectInfo | undefined;
    try {
      image = await this.#images.inspect(reference);
      if (image !== undefined) await this.requireBounded(ownerUid, image, reference);
    } catch (error) {
      if (image === undefined || image.Id !== before?.Id) await this.#discard(reference, before, digest);
      throw error;
    }
  }

  /** @throws SvcError `denied`, `too_many` */
  async requireBounded(ownerUid: number, image: ImageInspectInfo, reference: string): Promise<void> {
    const [excess] = [...tooLong(descriptionBytes(image)), ...excessOfImage(image)];
    if (excess !== undefined)
      throw new SvcError("denied", `the image ${reference} ${excess}, which only root's own apps may have`);
    await this.#userObjects.requireImages(ownerUid, image.Id, reference);
  }

  /**
   * Removes a new image. If its name belonged to another image, that image gets the name back, and only the digest
   * identifies the new one. Retries, because the image itself may slow the engine down.
   */
  async #discard(reference: string, before: ImageInspectInfo | undefined, digest = ""): Promise<void> {
    const { host, repository, digest: ownDigest } = parseImageReference(reference);
    const returnsName = before !== undefined && ownDigest === undefined;
    const name = returnsName ? formatImageReference({ host, repository, digest }) : reference;
    for (let attempt = 1; ; attempt++) {
      try {
        if (returnsName) await this.#images.restoreNames([{ reference, id: before.Id }]);
        await this.#images.remove(name);
        return;
      } catch (error) {
        if (attempt === removalAttempts) throw error;
      }
    }
  }
}
