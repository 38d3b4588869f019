/** The image of an app: pulled, or built from its checkout. */
import { createHash } from "node:crypto";
import type { ImageInspectInfo } from "dockerode";
import { appLabels, madeForFilter } from "../../docker/attribution.ts";
import type { ContainerRecord } from "../../docker/container-record.ts";
import { unlessGone } from "../../docker/engine-errors.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import { parseImageReference } from "../../docker/image-reference.ts";
import type { RegistryCredentials } from "../../docker/registry-auth.ts";
import { notFound, SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identities.ts";
import type { DockerRuntime } from "../../packages/manifest.ts";
import { checkoutOf } from "../app-tree.ts";
import { tooLong } from "../container-policy.ts";
import type { PulledImages, ReplacedImage, RunnableApp, RuntimeWork } from "../runtime.ts";
import { builtPrefix, requireForeign } from "./foreign-images.ts";
import { buildImage, type BuildOptions } from "./image-build.ts";
import { digestOf, localDigests } from "./image-digests.ts";
import { pullImage } from "./image-pull.ts";

/** Whom the registry of an image knows, of an owner's credentials; `undefined`: nobody. */
export type CredentialsOf = (ownerUid: number, reference: string) => Promise<RegistryCredentials | undefined>;

export interface AppImagesOptions {
  engine: DockerEngine;
  identities: Identities;
  storeId: string;
  credentialsOf: CredentialsOf;
}

const removeTimeoutMs = 60_000;

export class AppImages {
  readonly #options: AppImagesOptions;

  constructor(options: AppImagesOptions) {
    this.#options = options;
  }

  /** What the image of this version of the app is called here. */
  reference(app: RunnableApp): string {
    const { image } = dockerRuntime(app);
    return image === undefined ? this.builtTag(app) : withTag(image);
  }

  /** The local image; `undefined` when it is not there. @throws SvcError `unavailable` */
  async local(app: RunnableApp, signal?: AbortSignal): Promise<ImageInspectInfo | undefined> {
    return this.inspect(this.reference(app), signal);
  }

  /** The local image; made or pulled again where somebody has removed it. */
  async present(app: RunnableApp): Promise<ImageInspectInfo> {
    const known = await this.local(app);
    if (known !== undefined) return known;
    await this.provide(app, {});
    const image = await this.local(app);
    if (image === undefined) throw new Error(`the image of app "${app.id}" is gone as soon as it was there`);
    return image;
  }

  inspect(reference: string, signal?: AbortSignal): Promise<ImageInspectInfo | undefined> {
    return unlessGone(
      this.#options.engine.call(
        `inspect the image ${reference}`,
        (docker) => docker.getImage(reference).inspect(),
        { signal },
      ),
    );
  }

  /**
   * Builds the image afresh, or pulls it when it is not there: what is there stays as it is until it is repulled, so that
   * an upgrade that fails comes back to the very same image.
   * @throws SvcError `build_failed`, `denied`, what {@link pullImage} throws
   */
  async provide(app: RunnableApp, work: RuntimeWork): Promise<void> {
    const { image, build } = dockerRuntime(app);
    if (image !== undefined) {
      requireForeign(image);
      if ((await this.local(app, work.signal)) === undefined) await this.pull(app.ownerUid, image, work);
      return;
    }
    const { context = ".", dockerfile = "Dockerfile", target, args = {} } = build ?? {};
    await this.build(app, { context: `${checkoutOf(app)}/${context}`, dockerfile, target, args }, work);
  }

  /**
   * Builds an image from the app's directory, with its owner's identity.
   * @param part of an app of several images
   * @throws SvcError what {@link buildImage} throws
   */
  async build(
    app: RunnableApp,
    source: Pick<BuildOptions, "context" | "dockerfile" | "target" | "args">,
    work: RuntimeWork,
    part?: string,
  ): Promise<void> {
    const { engine, identities, storeId } = this.#options;
    if (app.ownerUid !== 0) requireOwnKey(source.args);
    await buildImage(engine, {
      ...work,
      ...source,
      identity: await identities.as(app.uid),
      root: app.directory,
      tag: this.builtTag(app, part),
      labels: appLabels(app.id, storeId),
      base: (reference) => this.#base(app.ownerUid, withTag(reference), work),
    });
    await this.#requireShort(app.ownerUid, this.builtTag(app, part));
  }

  /** @throws SvcError `denied` for a regular user's image that says too much of itself; it is gone then */
  async #requireShort(ownerUid: number, reference: string): Promise<void> {
    if (ownerUid === 0) return;
    const [excess] = tooLong(JSON.stringify((await this.inspect(reference)) ?? {}).length);
    if (excess === undefined) return;
    await this.#remove(reference);
    throw new SvcError("denied", `the image ${reference} ${excess}, which only root's own apps may`);
  }

  async #base(ownerUid: number, reference: string, work: RuntimeWork) {
    if ((await this.inspect(reference, work.signal)) === undefined)
      await this.pull(ownerUid, reference, work);
    const image = await this.inspect(reference, work.signal);
    if (image === undefined) throw notFound("image", reference);
    const { OnBuild: triggers } = image.Config as { OnBuild?: string[] | null };
    return { id: image.Id, triggers: triggers ?? [] };
  }

  /** @throws SvcError what {@link pullImage} throws */
  async pull(ownerUid: number, image: string, work: RuntimeWork): Promise<void> {
    const reference = withTag(image);
    const credentials = await this.#options.credentialsOf(ownerUid, reference);
    await pullImage(this.#options.engine, reference, { ...work, credentials });
    await this.#requireShort(ownerUid, reference);
  }

  /**
   * Pulls an image whether or not it is there.
   * @returns undefined for one that came from no registry: it stays as it is
   * @throws SvcError what {@link pullImage} throws
   */
  async pullAfresh(ownerUid: number, image: string, work: RuntimeWork): Promise<PulledImages | undefined> {
    const reference = withTag(image);
    const before = await this.inspect(reference, work.signal);
    if (before !== undefined && localDigests(before).length === 0) return undefined;
    await this.pull(ownerUid, image, work);
    const after = await this.inspect(reference, work.signal);
    if (after === undefined) throw notFound("image", image);
    const changed = after.Id !== before?.Id;
    const replaced = changed && before !== undefined ? [{ reference, id: before.Id }] : [];
    return { changed, digest: digestOf(after), replaced };
  }

  /** Has the names stand for what they stood for before they were pulled afresh. */
  async putBack(replaced: readonly ReplacedImage[]): Promise<void> {
    for (const { reference, id } of replaced) {
      const at = reference.lastIndexOf(":");
      const name = { repo: reference.slice(0, at), tag: reference.slice(at + 1) };
      await this.#options.engine.operate(
        `give the image ${reference} its name back`,
        (docker) => docker.getImage(id).tag(name),
        { timeoutMs: removeTimeoutMs },
      );
    }
  }

  /**
   * Removes the images of containers that are gone, where a repull has taken their names: nobody could tell what they are.
   * What a container still uses stays.
   */
  async removeNameless(containers: readonly Pick<ContainerRecord, "image" | "imageId">[]): Promise<void> {
    const named = containers.filter(({ image }) => !image.includes("@"));
    for (const id of new Set(named.map(({ imageId }) => imageId))) {
      const image = await this.inspect(id);
      const tags = image?.RepoTags as string[] | null | undefined;
      if (image !== undefined && (tags ?? []).length === 0) await this.#remove(id);
    }
  }

  /** What these images take together, each counted once; `undefined` when none is there. @param names references or ids */
  async sizeOf(names: readonly string[], signal?: AbortSignal): Promise<number | undefined> {
    const sizes = new Map<string, number>();
    for (const name of new Set(names)) {
      const image = await this.inspect(name, signal);
      if (image !== undefined) sizes.set(image.Id, image.Size);
    }
    return sizes.size === 0 ? undefined : [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Removes what was built for the app, but for the images named `keep`; what a container still uses stays. Resolves with the bytes. */
  async removeBuilt(app: RunnableApp, keep: readonly string[]): Promise<number> {
    const { engine, storeId } = this.#options;
    const filters = madeForFilter(app.id, storeId);
    const images = await engine.call(`list the images of app "${app.id}"`, (docker) =>
      docker.listImages({ filters }),
    );
    let freed = 0;
    for (const { Id: id, RepoTags: tags, Size: sizeBytes } of images) {
      const all = ((tags as string[] | null) ?? []).filter((tag) => tag !== "<none>:<none>");
      const names = all.length === 0 ? [id] : all.filter((tag) => !keep.includes(tag));
      for (const name of names) await this.#remove(name);
      if (!all.some((tag) => keep.includes(tag))) freed += sizeBytes;
    }
    return freed;
  }

  async #remove(name: string): Promise<void> {
    try {
      await this.#options.engine.operate(
        `remove the image ${name}`,
        (docker) => docker.getImage(name).remove(),
        { timeoutMs: removeTimeoutMs },
      );
    } catch (error) {
      // Somebody else's container may use it, or somebody else has removed it.
      if (!(error instanceof SvcError) || !["not_found", "failed_precondition"].includes(error.code)) {
        throw error;
      }
    }
  }

  /** Another one for each version, so that a new one is built beside the old one. @param part of an app of several images */
  builtTag({ id, version, manifest }: RunnableApp, part = ""): string {
    const digest = createHash("sha256")
      .update(JSON.stringify([this.#options.storeId, id, version, manifest.runtime, part]))
      .digest("hex")
      .slice(0, 16);
    // Of separators an image's name allows fewer than an app's id.
    return `${builtPrefix}${id.replaceAll(/[._-]+/g, "-")}:${digest}`;
  }
}

/**
 * The engine keeps what a step made for all who build the same, and of these arguments it takes no note: what came through
 * one user's proxy would be in another's image.
 * @throws SvcError `denied`
 */
function requireOwnKey(args: Readonly<Record<string, string>>): void {
  const proxy = Object.keys(args).find((name) => /^(?:https?|ftp|no|all)_proxy$/i.test(name));
  if (proxy === undefined) return;
  const message = `the build argument ${proxy} would change what others build, too: say it with ENV in the Dockerfile`;
  throw new SvcError("denied", message);
}

/** @throws Error for an app that does not run as one container */
export function dockerRuntime(app: RunnableApp): DockerRuntime {
  const { runtime } = app.manifest;
  if (runtime.kind !== "docker") throw new Error(`app ${app.id} runs as ${runtime.kind}`);
  return runtime;
}

/** Without a tag the engine would pull all of them. @throws SvcError `invalid_argument` for what is no name of an image */
export function withTag(image: string): string {
  const { tag, digest } = parseImageReference(image);
  return image.endsWith(`:${tag ?? ""}`) || digest !== undefined ? image : `${image}:${tag ?? ""}`;
}
