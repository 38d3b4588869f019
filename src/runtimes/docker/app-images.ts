/** The image of an app, pulled or built from its checkout. */
import { createHash } from "node:crypto";
import { posix } from "node:path";
import type { ImageInspectInfo } from "dockerode";
import { descriptionBytes } from "../../engine/engine-objects.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { parseImageReference } from "../../engine/image-reference.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { RegistryCredentials } from "../../engine/registry-auth.ts";
import { notFound, SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { DockerRuntime } from "../../packages/manifest/manifest.ts";
import { checkoutOf } from "../app-tree.ts";
import { requireBoundedImage } from "../containers/image-bounds.ts";
import type { PulledImages, RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { requireNamedImages } from "./dockerfile-images.ts";
import { builtPrefix, requireAllowedName, digestOf, localDigests } from "./image-names.ts";
import { EngineImages } from "./engine-images.ts";
import { NewImageCheck } from "./new-image-check.ts";
import { buildImage, type BuildOptions } from "./image-build.ts";
import { confirmImage, pullImage } from "./image-pull.ts";
import type { UserObjects } from "../containers/user-objects.ts";
import type { UserBuilds } from "./user-builds.ts";
import type { UserImages } from "./user-images.ts";

/** The owner's credentials for the registry of an image; `undefined` without any. */
export type CredentialsOf = (ownerUid: number, reference: string) => Promise<RegistryCredentials | undefined>;

export interface AppImagesOptions {
  engine: DockerEngine;
  userHelpers: UserHelpers;
  ownership: EngineOwnership;
  credentialsOf: CredentialsOf;
  userImages: UserImages;
  userBuilds: UserBuilds;
  userObjects: UserObjects;
}

type BuildSource = Pick<BuildOptions, "context" | "dockerfile" | "target" | "args">;

export class AppImages extends EngineImages {
  readonly #newImages: NewImageCheck;
  readonly #options: AppImagesOptions;

  constructor(options: AppImagesOptions) {
    super(options.engine);
    this.#options = options;
    this.#newImages = new NewImageCheck(this, options.userObjects);
  }

  /** Local name of the image of this version of the app. */
  reference(app: RunnableApp): string {
    const { image } = dockerRuntime(app);
    return image === undefined ? this.builtTag(app) : withTag(image);
  }

  /** The local image; `undefined` if there is none that the app may use. @throws SvcError `unavailable` */
  async local(app: RunnableApp, signal?: AbortSignal): Promise<ImageInspectInfo | undefined> {
    return this.usable(app.ownerUid, this.reference(app), signal);
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
    const known = await this.usable(ownerUid, reference, work.signal);
    if (known !== undefined) return known;
    if (!(await this.#confirmLocal(ownerUid, reference, work))) await this.pull(ownerUid, reference, work);
    const image = await this.usable(ownerUid, reference, work.signal);
    if (image === undefined) throw notFound("image", reference);
    return image;
  }

  /** The local image; built or pulled again if it was removed. */
  async present(app: RunnableApp, work: RuntimeWork): Promise<ImageInspectInfo> {
    const known = await this.local(app);
    if (known !== undefined) return known;
    try {
      await this.provide(app, work);
    } catch (error) {
      const recorded = work.signal?.aborted === true ? undefined : await this.#recorded(app);
      if (recorded === undefined) throw error;
      return recorded;
    }
    const image = await this.local(app);
    if (image === undefined)
      throw new Error(`the image of app "${app.id}" was removed right after it was obtained`);
    return image;
  }

  /** The newest image that svc pulled for the owner under this name and that still exists, even if the name moved. */
  async #recorded(app: RunnableApp): Promise<ImageInspectInfo | undefined> {
    for (const id of this.#options.userImages.recorded(app.ownerUid, this.reference(app))) {
      const image = await this.inspect(id);
      if (image !== undefined) return image;
    }
    return undefined;
  }

  /**
   * Builds the image again, or pulls it if it is missing. An existing image stays until it is repulled, so that a
   * failed upgrade returns to exactly the same image.
   * @throws SvcError `build_failed`, `denied`, what {@link pullImage} throws
   */
  async provide(app: RunnableApp, work: RuntimeWork): Promise<void> {
    const { image, build } = dockerRuntime(app);
    if (image !== undefined) {
      requireAllowedName(image);
      await this.obtain(app.ownerUid, withTag(image), work);
      return;
    }
    const { context = ".", dockerfile = "Dockerfile", target, args = {} } = build ?? {};
    await this.build(app, { context: `${checkoutOf(app)}/${context}`, dockerfile, target, args }, work);
  }

  /**
   * Builds an image from the app's directory, as its owner.
   * @param source `ownImages`: built images of the app by the names that its files give them
   * @param part service of an app with several images
   * @throws SvcError what {@link buildImage} throws
   */
  async build(
    app: RunnableApp,
    { ownImages, ...source }: BuildSource & { readonly ownImages?: ReadonlyMap<string, string> },
    work: RuntimeWork,
    part?: string,
  ): Promise<void> {
    const { engine, userHelpers, ownership, userImages, userBuilds } = this.#options;
    if (app.ownerUid !== 0) requireOwnKey(source.args);
    const signal = work.signal ?? new AbortController().signal;
    await using bounds = userImages.restricts(app.ownerUid) ? await userBuilds.enter(app, signal) : undefined;
    await buildImage(engine, {
      ...work,
      ...source,
      bounds,
      userHelper: await userHelpers.as(app.uid),
      root: app.directory,
      tag: this.builtTag(app, part),
      labels: ownership.labels("image", app.id),
      base: (reference) => {
        const name = withTag(reference);
        return this.#base(app.ownerUid, ownImages?.get(name) ?? name, work);
      },
    });
    await this.#newImages.requireBoundedNew(app.ownerUid, this.builtTag(app, part));
    try {
      await bounds?.verify();
    } catch (error) {
      await this.remove(this.builtTag(app, part));
      throw error;
    }
  }

  /** The builds in an order in which each follows those whose images its Dockerfile uses. */
  async inBuildOrder<T extends BuildSource & { readonly service: string }>(
    app: RunnableApp,
    builds: readonly T[],
    ownImages: ReadonlyMap<string, string>,
  ): Promise<readonly T[]> {
    if (builds.length < 2 || ownImages.size === 0) return builds;
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const byTag = new Map(builds.map((build) => [this.builtTag(app, build.service), build]));
    const ordered = new Set<T>();
    const started = new Set<T>();
    const add = async (build: T): Promise<void> => {
      if (started.has(build)) return;
      started.add(build);
      for (const reference of await basesOf(userHelper, app.directory, build)) {
        const base = byTag.get(ownImages.get(reference) ?? "");
        if (base !== undefined) await add(base);
      }
      ordered.add(build);
    };
    for (const build of builds) await add(build);
    return [...ordered];
  }

  async #base(ownerUid: number, reference: string, work: RuntimeWork) {
    const image = await this.obtain(ownerUid, reference, work);
    if (ownerUid !== 0) requireBoundedImage(image, reference);
    const { OnBuild: triggers } = image.Config as { OnBuild?: string[] | null };
    const labels = image.Config.Labels as Readonly<Record<string, string>> | null | undefined;
    return {
      ...{ id: image.Id, triggers: triggers ?? [], labels: Object.keys(labels ?? {}) },
      environment: (image.Config.Env as string[] | null | undefined) ?? [],
      descriptionBytes: descriptionBytes(image),
    };
  }

  /**
   * Lets the user use the local image of this name if the registry shows exactly this image to them. A pull could
   * move the name to a newer image, which other users' apps would run from their next start.
   * @returns false if the image must be pulled
   * @throws SvcError what {@link confirmImage} throws
   */
  async #confirmLocal(ownerUid: number, reference: string, work: RuntimeWork): Promise<boolean> {
    const { engine, credentialsOf, userImages } = this.#options;
    if (!userImages.restricts(ownerUid)) return false;
    const image = await this.inspect(reference, work.signal);
    const { repository, host } = parseImageReference(reference);
    const name = ((image?.RepoDigests as string[] | null | undefined) ?? []).find((digested) => {
      const named = parseImageReference(digested);
      return named.host === host && named.repository === repository;
    });
    if (image === undefined || name === undefined) return false;
    const access = { ...work, credentials: await credentialsOf(ownerUid, reference) };
    // The same error as for a missing image, so that users cannot find out what others have pulled.
    const newest = await confirmImage(engine, reference, access);
    if (!name.endsWith(`@${newest}`)) {
      try {
        await confirmImage(engine, name, access);
      } catch (error) {
        // The registry may have deleted it meanwhile.
        if (!(error instanceof SvcError) || error.code !== "not_found") throw error;
        return false;
      }
    }
    await this.#newImages.requireBounded(ownerUid, image, reference);
    await userImages.record(ownerUid, reference, image.Id);
    return true;
  }

  /** @throws SvcError what {@link confirmImage} and {@link pullImage} throw */
  async pull(ownerUid: number, image: string, work: RuntimeWork): Promise<void> {
    const { engine, credentialsOf, userImages } = this.#options;
    const reference = withTag(image);
    const access = { ...work, credentials: await credentialsOf(ownerUid, reference) };
    if (!userImages.restricts(ownerUid)) {
      await pullImage(engine, reference, access);
      return;
    }
    // Some engines accept a digest that they have without asking the registry.
    const confirmed = await confirmImage(engine, reference, access);
    const before = await this.inspect(reference, work.signal);
    let digest = confirmed;
    try {
      digest = (await pullImage(engine, reference, access)) ?? confirmed;
    } finally {
      // The engine may have the image although the pull was canceled.
      await this.#newImages.requireBoundedNew(ownerUid, reference, before, digest);
    }
    const pulled = await this.inspect(reference, work.signal);
    if (pulled === undefined || !localDigests(pulled).includes(digest))
      throw new SvcError("source_failed", `image ${reference} changed while it was pulled; try again`);
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

  /**
   * Removes the app's built images except `keep`, and except those of containers. Resolves to the number of freed
   * bytes.
   */
  async removeBuilt(app: RunnableApp, keep: readonly string[]): Promise<number> {
    const { engine, ownership } = this.#options;
    const filters = ownership.filter(app.id);
    const images = await engine.call(`list the images of app "${app.id}"`, (docker) =>
      docker.listImages({ filters }),
    );
    let freed = 0;
    for (const { Id: id, RepoTags: tags, Size: sizeBytes, Labels: labels } of images) {
      const all = ((tags as string[] | null) ?? []).filter((tag) => tag !== "<none>:<none>");
      if (!ownership.isOwn("image", app.id, { labels, names: all })) continue;
      const names = all.length === 0 ? [id] : all.filter((tag) => !keep.includes(tag));
      for (const name of names) await this.remove(name);
      if (!all.some((tag) => keep.includes(tag))) freed += sizeBytes;
    }
    return freed;
  }

  /**
   * A different tag per version, so that a new image is built beside the old one. @param part service of an app with
   * several images
   */
  builtTag({ id, version, manifest }: RunnableApp, part = ""): string {
    const digest = createHash("sha256")
      .update(JSON.stringify([this.#options.ownership.storeId, id, version, manifest.runtime, part]))
      .digest("hex")
      .slice(0, 16);
    // Image names allow fewer separators than app IDs.
    return `${builtPrefix}${id.replaceAll(/[._-]+/g, "-")}:${digest}`;
  }
}

/**
 * The engine shares its build cache between users and ignores these arguments in it: content from one user's proxy
 * would get into another user's image.
 * @throws SvcError `denied`
 */
function requireOwnKey(args: Readonly<Record<string, string>>): void {
  const proxy = Object.keys(args).find((name) => /^(?:https?|ftp|no|all)_proxy$/i.test(name));
  if (proxy === undefined) return;
  const message = `the build argument ${proxy} would affect builds of other users through the build cache; use ENV in the Dockerfile instead`;
  throw new SvcError("denied", message);
}

/** The images that a Dockerfile uses, with tags; none if it cannot be read, which its build reports. */
async function basesOf(
  userHelper: Pick<UserHelper, "readFile">,
  root: string,
  { context, dockerfile, args }: BuildSource,
): Promise<string[]> {
  try {
    const text = await userHelper.readFile(root, posix.join(context, dockerfile));
    return requireNamedImages(text.toString(), args).map(({ reference }) => withTag(reference));
  } catch (error) {
    if (error instanceof SvcError) return [];
    throw error;
  }
}

/** @throws Error for an app that does not run as one container */
export function dockerRuntime(app: RunnableApp): DockerRuntime {
  const { runtime } = app.manifest;
  if (runtime.kind !== "docker") throw new Error(`app ${app.id} runs as ${runtime.kind}`);
  return runtime;
}

/**
 * Adds the default tag: without a tag the engine would pull all. @throws SvcError `invalid_argument` for an invalid
 * image name
 */
export function withTag(image: string): string {
  const { tag, digest } = parseImageReference(image);
  return image.endsWith(`:${tag ?? ""}`) || digest !== undefined ? image : `${image}:${tag ?? ""}`;
}
