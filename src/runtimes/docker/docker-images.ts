/** The image operations of the docker runtime. */
import { SvcError } from "../../errors.ts";
import { AppContainers, type AppContainersOptions } from "../containers/app-containers.ts";
import type {
  ImageRuntime,
  PulledImages,
  ReplacedImage,
  RuntimeDisk,
  RuntimeImage,
  RuntimeStack,
  RuntimeWork,
} from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { EngineNeeds } from "../../engine/protection.ts";
import { dockerRuntime, type AppImages } from "./app-images.ts";
import { withTag } from "./image-names.ts";
import { describeImage, pinnedBy, type FreshnessOptions } from "./image-freshness.ts";

export interface DockerImagesOptions extends AppContainersOptions, FreshnessOptions {
  images: AppImages;
}

export class DockerImages implements ImageRuntime {
  readonly #options: DockerImagesOptions;

  constructor(options: DockerImagesOptions) {
    this.#options = options;
  }

  /** Only its image: the app's data is in its own directory, not in volumes. */
  needs(app: RunnableApp): Promise<EngineNeeds> {
    return Promise.resolve({ images: [this.#options.images.reference(app)], volumes: [] });
  }

  image(app: RunnableApp, options: { checkRemote: boolean; signal?: AbortSignal }): Promise<RuntimeImage> {
    return describeImage(this.#options, app, this.#options.images.reference(app), options);
  }

  async pull(app: RunnableApp, work: RuntimeWork): Promise<PulledImages> {
    const { image } = dockerRuntime(app);
    const reason = image === undefined ? "the image was built here" : pinnedBy(withTag(image));
    if (image === undefined || reason !== undefined) {
      const message = `the image of app "${app.id}" cannot be pulled again: ${reason ?? ""}; upgrade the app instead`;
      throw new SvcError("pinned_image", message);
    }
    const result = await this.#options.images.pullAgain(app.ownerUid, image, work);
    if (result !== undefined) return result;
    throw new SvcError("pinned_image", `the image ${image} was built on this host, not pulled`);
  }

  restoreNames(replaced: readonly ReplacedImage[]): Promise<void> {
    return this.#options.images.restoreNames(replaced);
  }

  /** Size of the image that the app starts with, and of the images of its existing containers. */
  async disk(app: RunnableApp, signal?: AbortSignal): Promise<RuntimeDisk> {
    const containers = await new AppContainers(app.id, this.#options).all();
    const names = [this.#options.images.reference(app), ...containers.map(({ imageId }) => imageId)];
    const imageBytes = await this.#options.images.sizeOf(names, signal);
    return { ...(imageBytes !== undefined && { imageBytes }), volumes: [] };
  }

  async stacks(): Promise<RuntimeStack[]> {
    return Promise.resolve([]);
  }
}
