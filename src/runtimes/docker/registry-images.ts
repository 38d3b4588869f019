/** Images of registries, for the apps of an owner: finds, confirms and pulls them. */
import type { ImageInspectInfo } from "dockerode";
import type { DockerEngine } from "../../engine/engine.ts";
import { imagesDir, platformOf } from "../../engine/engine-platform.ts";
import { formatImageReference, parseImageReference } from "../../engine/image-reference.ts";
import type { RegistryCredentials } from "../../engine/registry-auth.ts";
import type { RegistryTransport } from "../../engine/registry-transport.ts";
import { notFound, SvcError } from "../../errors.ts";
import type { PulledImages, RuntimeWork } from "../capabilities.ts";
import type { UserObjects } from "../containers/user-objects.ts";
import { EngineImages } from "./engine-images.ts";
import { builtPrefix, digestOf, localDigests, withTag } from "./image-names.ts";
import { pullImage } from "./image-pull.ts";
import { NewImageCheck } from "./new-image-check.ts";
import { confirmImage, readOffer } from "./offered-image.ts";
import { UnpackWatch } from "./unpack-watch.ts";
import type { UserImages } from "./user-images.ts";

/** The owner's credentials for the registry of an image; `undefined` without any. */
export type CredentialsOf = (ownerUid: number, reference: string) => Promise<RegistryCredentials | undefined>;

export interface RegistryImagesOptions {
  engine: DockerEngine;
  credentialsOf: CredentialsOf;
  userImages: UserImages;
  userObjects: UserObjects;
  /** How the engine reaches a registry; `host` as in image names. */
  transportOf: (host: string) => Promise<RegistryTransport>;
}

interface RegistryLogin extends RuntimeWork {
  readonly credentials: RegistryCredentials | undefined;
}

export class RegistryImages extends EngineImages {
  protected readonly newImages: NewImageCheck;
  readonly #options: RegistryImagesOptions;

  constructor(options: RegistryImagesOptions) {
    super(options.engine);
    this.#options = options;
    this.newImages = new NewImageCheck(this, options.userObjects);
  }

  /** The local image of that name; `undefined` if apps of this owner may use none. */
  async usable(
    ownerUid: number,
    reference: string,
    signal?: AbortSignal,
  ): Promise<ImageInspectInfo | undefined> {
    const image = await this.inspect(reference, signal);
    // Packages cannot refer to images that svc built, so this is the app's own.
    if (image === undefined || reference.startsWith(builtPrefix)) return image;
    const find = async (name: string): Promise<string | undefined> => (await this.inspect(name))?.Id;
    return (await this.#options.userImages.allows(ownerUid, reference, image.Id, find)) ? image : undefined;
  }

  /**
   * The local image of that name; pulls it if apps of this owner may use none.
   * @throws SvcError what {@link pull} throws
   */
  async obtain(ownerUid: number, reference: string, work: RuntimeWork): Promise<ImageInspectInfo> {
    const known = await this.#confirmed(ownerUid, reference, work);
    if (known !== undefined) return known;
    await this.pull(ownerUid, reference, work);
    const image = await this.usable(ownerUid, reference, work.signal);
    if (image === undefined) throw notFound("image", reference);
    return image;
  }

  /**
   * The local image of that name, which a user may also use if the registry confirms it.
   * @throws SvcError what {@link confirmImage} throws
   */
  async existing(
    ownerUid: number,
    reference: string,
    work: RuntimeWork,
  ): Promise<ImageInspectInfo | undefined> {
    const known = await this.usable(ownerUid, reference, work.signal);
    if (known !== undefined || !this.#options.userImages.restricts(ownerUid)) return known;
    // Confirm a missing image, too, so that the time does not show users what others have pulled.
    await this.#confirm(reference, await this.#accessOf(ownerUid, reference, work));
    return this.#confirmed(ownerUid, reference, work);
  }

  async #confirmed(
    ownerUid: number,
    reference: string,
    work: RuntimeWork,
  ): Promise<ImageInspectInfo | undefined> {
    const known = await this.usable(ownerUid, reference, work.signal);
    if (known !== undefined || !(await this.#confirmLocal(ownerUid, reference, work))) return known;
    return this.usable(ownerUid, reference, work.signal);
  }

  /**
   * Lets the user use the local image of this name if the registry shows exactly this image to them. A pull could
   * move the name to a newer image, which other users' apps would run from their next start.
   * @returns false if the image must be pulled
   * @throws SvcError what {@link confirmImage} throws
   */
  async #confirmLocal(ownerUid: number, reference: string, work: RuntimeWork): Promise<boolean> {
    const { userImages } = this.#options;
    if (!userImages.restricts(ownerUid)) return false;
    const image = await this.inspect(reference, work.signal);
    const { repository, host } = parseImageReference(reference);
    const name = ((image?.RepoDigests as string[] | null | undefined) ?? []).find((digested) => {
      const named = parseImageReference(digested);
      return named.host === host && named.repository === repository;
    });
    if (image === undefined || name === undefined) return false;
    const access = await this.#accessOf(ownerUid, reference, work);
    // The same error as for a missing image, so that users cannot find out what others have pulled.
    const newest = await this.#confirm(reference, access);
    if (!name.endsWith(`@${newest}`)) {
      try {
        await this.#confirm(name, access);
      } catch (error) {
        // The registry may have deleted the image.
        if (!(error instanceof SvcError) || error.code !== "not_found") throw error;
        return false;
      }
    }
    await this.newImages.requireBounded(ownerUid, image, reference);
    await userImages.record(ownerUid, reference, image.Id);
    return true;
  }

  /** @throws SvcError `denied` if the owner may not use the registry of an image */
  requireRegistry(ownerUid: number, reference: string): void {
    this.#options.userImages.requireRegistry(ownerUid, reference);
  }

  /** @throws SvcError as {@link requireRegistry} */
  async #accessOf(ownerUid: number, reference: string, work: RuntimeWork): Promise<RegistryLogin> {
    this.requireRegistry(ownerUid, reference);
    return { ...work, credentials: await this.#options.credentialsOf(ownerUid, reference) };
  }

  async #confirm(reference: string, access: RegistryLogin): Promise<string> {
    const { engine, transportOf } = this.#options;
    const { host } = parseImageReference(reference);
    return confirmImage(engine, reference, { ...access, transport: await transportOf(host) });
  }

  /** @throws SvcError `denied`, `too_many`, what {@link readOffer} and {@link pullImage} throw */
  async pull(ownerUid: number, image: string, work: RuntimeWork): Promise<void> {
    const reference = withTag(image);
    const access = await this.#accessOf(ownerUid, reference, work);
    if (this.#options.userImages.restricts(ownerUid)) await this.#pullOffered(ownerUid, reference, access);
    else await pullImage(this.#options.engine, reference, access);
  }

  /** Pulls exactly what svc has read and checked, by its digest, and only then gives it the name. */
  async #pullOffered(ownerUid: number, reference: string, access: RegistryLogin): Promise<void> {
    const { engine, userImages, userObjects, transportOf } = this.#options;
    const { signal } = access;
    const { host, repository, digest: pinned } = parseImageReference(reference);
    const offer = await readOffer(engine, reference, {
      ...{ signal, credentials: access.credentials },
      ...{ transport: await transportOf(host), platform: await platformOf(engine, signal) },
    });
    const { digest, downloadBytes: maxDownloadBytes } = offer;
    const name = formatImageReference({ host, repository, digest });
    const before = await this.inspect(name, signal);
    using space =
      before === undefined
        ? await UnpackWatch.start({
            ...{ reference, dir: await imagesDir(engine, signal) },
            maxBytes: await userObjects.requireImageSpace(ownerUid, reference, maxDownloadBytes),
          })
        : undefined;
    const signals = [signal, space?.signal].filter((each) => each !== undefined);
    try {
      const shown = { shownName: reference, maxDownloadBytes };
      await pullImage(engine, name, { ...access, ...shown, signal: AbortSignal.any(signals) });
    } finally {
      // The engine may have the image although the pull was canceled.
      if (before === undefined) await this.newImages.requireBoundedNew(ownerUid, name, reference);
    }
    const pulled = await this.inspect(name, signal);
    if (pulled === undefined) throw new Error(`the image ${name} was removed right after it was pulled`);
    if (before !== undefined) await this.newImages.requireBounded(ownerUid, pulled, reference);
    if (pinned === undefined) await this.restoreNames([{ reference, id: pulled.Id }]);
    await userImages.record(ownerUid, reference, pulled.Id);
  }

  /**
   * Pulls an image even if it exists locally.
   * @returns undefined for an image that did not come from a registry, which stays unchanged
   * @throws SvcError what {@link pullImage} throws
   */
  async pullAgain(ownerUid: number, image: string, work: RuntimeWork): Promise<PulledImages | undefined> {
    const reference = withTag(image);
    const before = await this.usable(ownerUid, reference, work.signal);
    if (before !== undefined && localDigests(before).length === 0) return undefined;
    await this.pull(ownerUid, image, work);
    const after = await this.inspect(reference, work.signal);
    if (after === undefined) throw notFound("image", image);
    const changed = after.Id !== before?.Id;
    const replaced = changed && before !== undefined ? [{ reference, id: before.Id }] : [];
    return { changed, digest: digestOf(after), replaced };
  }
}
