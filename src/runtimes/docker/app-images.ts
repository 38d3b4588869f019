/** The image of an app, pulled or built from its checkout. */
import { createHash } from "node:crypto";
import type { ImageInspectInfo } from "dockerode";
import { descriptionBytes } from "../../engine/engine-objects.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import type { DockerRuntime } from "../../packages/manifest/manifest.ts";
import { checkoutOf } from "../app-tree.ts";
import { requireBoundedImage } from "../containers/image-bounds.ts";
import type { RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { findImages } from "./dockerfile-images.ts";
import { readDockerfile } from "./dockerfile-source.ts";
import { builtPrefix, requireAllowedName, withTag } from "./image-names.ts";
import { failedWithoutOutput } from "./build-output.ts";
import type { BuildBase, BuildOptions } from "./build-request.ts";
import { buildImage } from "./image-build.ts";
import { RegistryImages, type RegistryImagesOptions } from "./registry-images.ts";
import type { UserBuilds } from "./user-builds.ts";

export interface AppImagesOptions extends RegistryImagesOptions {
  userHelpers: UserHelpers;
  ownership: EngineOwnership;
  userBuilds: UserBuilds;
  /** Applies ignore files. */
  yaml: YamlThread;
}

type BuildSource = Pick<BuildOptions, "context" | "dockerfile" | "inline" | "target" | "args" | "settings">;

export class AppImages extends RegistryImages {
  readonly #options: AppImagesOptions;

  constructor(options: AppImagesOptions) {
    super(options);
    this.#options = options;
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
    const { engine, userHelpers, ownership, userImages, userBuilds, yaml } = this.#options;
    if (app.ownerUid !== 0) requireOwnKey(source.args);
    const signal = work.signal ?? new AbortController().signal;
    await using bounds = userImages.restricts(app.ownerUid) ? await userBuilds.enter(app, signal) : undefined;
    await buildImage(engine, {
      ...work,
      ...source,
      bounds,
      userHelper: await userHelpers.as(app.uid),
      chooseEntries: async (choice) => {
        const answer = await yaml.choose(choice, app.ownerUid, signal);
        if ("numbers" in answer) return answer.numbers;
        throw failedWithoutOutput(answer.problems.map(({ message }) => message).join("; "));
      },
      root: app.directory,
      tag: this.builtTag(app, part),
      labels: ownership.labels("image", app.id),
      base: (reference) => {
        const own = ownImages?.get(withTag(reference));
        return this.#base(
          app.ownerUid,
          { name: own ?? reference, reference: own ?? withTag(reference) },
          work,
        );
      },
    });
    await this.newImages.requireBoundedNew(app.ownerUid, this.builtTag(app, part));
    try {
      await bounds?.verify();
    } catch (error) {
      await this.remove(this.builtTag(app, part));
      throw error;
    }
  }

  /** Sorts the builds so that each follows the builds whose images its Dockerfile uses. */
  async inBuildOrder<T extends BuildSource & { readonly service: string }>(
    app: RunnableApp,
    builds: readonly T[],
    ownImages: ReadonlyMap<string, string>,
  ): Promise<readonly T[]> {
    if (builds.length < 2) return builds;
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const byTag = new Map(builds.map((build) => [this.builtTag(app, build.service), build]));
    const ordered = new Set<T>();
    const started = new Set<T>();
    const add = async (build: T): Promise<void> => {
      if (started.has(build)) return;
      started.add(build);
      for (const reference of await basesOf(userHelper, app.directory, build)) {
        const base = byTag.get(ownImages.get(reference) ?? reference);
        if (base !== undefined) await add(base);
      }
      ordered.add(build);
    };
    for (const build of builds) await add(build);
    return [...ordered];
  }

  async #base(
    ownerUid: number,
    { name, reference }: { name: string; reference: string },
    work: RuntimeWork,
  ): Promise<BuildBase> {
    const image = await this.obtain(ownerUid, reference, work);
    if (ownerUid !== 0) requireBoundedImage(image, reference);
    const { OnBuild: triggers, Env: environment } = image.Config as {
      OnBuild?: string[] | null;
      Env?: string[] | null;
    };
    const labels = image.Config.Labels as Readonly<Record<string, string>> | null | undefined;
    return {
      ...{ id: image.Id, name, triggers: triggers ?? [], labels: Object.keys(labels ?? {}) },
      environment: environment ?? [],
      descriptionBytes: descriptionBytes(image),
    };
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
  userHelper: Pick<UserHelper, "readFile" | "stat">,
  root: string,
  source: BuildSource,
): Promise<string[]> {
  try {
    const text = await readDockerfile(userHelper, root, source);
    const contexts = Object.values(source.settings?.remoteContexts ?? {});
    return [
      ...findImages(text, source.args).map(({ reference }) => withTag(reference)),
      ...contexts.map((context) => context.replace("docker-image://", "")),
    ];
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
