/** What the API shows and does of the images and volumes of compose projects. */
import { composeProjectOf, isMadeFor } from "../../docker/attribution.ts";
import type { DiskMeter } from "../../docker/disk-usage.ts";
import { failedPrecondition } from "../../errors.ts";
import { AppContainers, type AppContainersOptions } from "../app-containers.ts";
import type { AppImages } from "../docker/app-images.ts";
import { pinnedBy } from "../docker/image-freshness.ts";
import type {
  EngineNeeds,
  ImageRuntime,
  PulledImages,
  ReplacedImage,
  RunnableApp,
  RuntimeDisk,
  RuntimeImage,
  RuntimeStack,
  RuntimeWork,
} from "../runtime.ts";
import { imagesOf, type ComposeProjects } from "./compose-project.ts";
import { isSet, recordOf, textOf } from "./compose-values.ts";

export interface ComposeImagesOptions extends AppContainersOptions {
  /** What the engine's volumes take. */
  disk: DiskMeter;
  images: AppImages;
  projects: ComposeProjects;
}

export class ComposeImages implements ImageRuntime {
  readonly #options: ComposeImagesOptions;

  constructor(options: ComposeImagesOptions) {
    this.#options = options;
  }

  async needs({ id }: RunnableApp): Promise<EngineNeeds> {
    const document = (await this.#options.projects.kept(id)) ?? {};
    const volumes = Object.entries(recordOf(document["volumes"])).map(([key, volume]) => {
      const name = textOf(recordOf(volume)["name"]);
      if (name !== "") return name;
      return isSet(recordOf(volume)["external"]) ? key : `${composeProjectOf(id)}_${key}`;
    });
    return { images: imagesOf(document), volumes };
  }

  /** Nothing: a project has many images (S 2.3). */
  async image(): Promise<RuntimeImage> {
    return Promise.resolve({});
  }

  /** Pulls those of its images that may change; the digest is that of the first that did, else of the first. */
  async pull(app: RunnableApp, work: RuntimeWork): Promise<PulledImages> {
    const { images, projects } = this.#options;
    const { pulls } = await projects.resolve(app, work.signal);
    const movable = pulls.filter((reference) => pinnedBy(reference) === undefined);
    const results: PulledImages[] = [];
    for (const reference of movable) {
      const result = await images.pullAfresh(app.ownerUid, reference, work);
      if (result !== undefined) results.push(result);
    }
    const [first] = results;
    if (first === undefined) {
      const message = `no image of app "${app.id}" is pulled afresh: each states its version, or was built here`;
      throw failedPrecondition("pinned_image", message);
    }
    const { changed, digest } = results.find((result) => result.changed) ?? first;
    return { changed, digest, replaced: results.flatMap(({ replaced }) => replaced) };
  }

  putBack(replaced: readonly ReplacedImage[]): Promise<void> {
    return this.#options.images.putBack(replaced);
  }

  async disk(app: RunnableApp, signal?: AbortSignal): Promise<RuntimeDisk> {
    const { disk, images } = this.#options;
    const needs = await this.needs(app);
    const kept = await new AppContainers(app.id, this.#options).all();
    const names = [...needs.images, ...kept.map(({ imageId }) => imageId)];
    const imageBytes = await images.sizeOf(names, signal);
    // The engine walks all of its volumes for that.
    const all = needs.volumes.length === 0 ? [] : (await disk.measure(signal)).volumes;
    const own = all.filter(({ name }) => needs.volumes.includes(name));
    return {
      ...(imageBytes !== undefined && { imageBytes }),
      volumes: own.map(({ name, sizeBytes }) => ({ name, sizeBytes })),
    };
  }

  /** @throws SvcError `unavailable` */
  async stacks(apps: readonly RunnableApp[]): Promise<RuntimeStack[]> {
    if (apps.length === 0) return [];
    const { state, storeId } = this.#options;
    const { containers } = await state.containers();
    return apps.map(({ id }) => ({
      name: composeProjectOf(id),
      appId: id,
      services: containers
        .filter(({ labels }) => isMadeFor(id, storeId, labels))
        .toSorted((a, b) => (a.name < b.name ? -1 : 1))
        .map((container) => ({
          name: container.composeService ?? "",
          state: container.state,
          container: container.name,
        })),
    }));
  }
}
