/** Checks new images of regular users: the engine reads the descriptions of all images for each list of images. */
import type { ImageInspectInfo } from "dockerode";
import { descriptionBytes } from "../../engine/engine-objects.ts";
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
   * Checks a regular user's image that was just pulled or built, and removes it if it exceeds a limit or cannot be
   * read.
   * @param shownName in errors
   * @throws SvcError `denied`, `too_many`
   */
  async requireBoundedNew(ownerUid: number, name: string, shownName = name): Promise<void> {
    if (ownerUid === 0) return;
    try {
      const image = await this.#images.inspect(name);
      if (image !== undefined) await this.requireBounded(ownerUid, image, shownName);
    } catch (error) {
      await this.#discard(name);
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

  /** Retries, because the image itself may slow the engine down. */
  async #discard(name: string): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#images.remove(name);
        return;
      } catch (error) {
        if (attempt === removalAttempts) throw error;
      }
    }
  }
}
