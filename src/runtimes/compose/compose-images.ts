/** The image and volume operations of the compose runtime. */
import { namedObject } from "../../engine/container-record.ts";
import type { DiskMeter } from "../../engine/disk-usage.ts";
import { SvcError } from "../../errors.ts";
import { AppContainers, type AppContainersOptions } from "../containers/app-containers.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import { type AppImages } from "../docker/app-images.ts";
import { builtPrefix } from "../docker/image-names.ts";
import { describeImage, pinnedBy, type FreshnessOptions } from "../docker/image-freshness.ts";
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
import type { ComposeProjects } from "./compose-project.ts";
import { imagesOf, referencesOf } from "./document-services.ts";
import { recordOf, volumeName } from "./compose-values.ts";

/** Concurrent requests to registries. */
const maxParallelReads = 4;

export interface ComposeImagesOptions extends AppContainersOptions, FreshnessOptions {
  /** Measures the engine's volumes. */
  disk: DiskMeter;
  images: AppImages;
  projects: ComposeProjects;
}

export class ComposeImages implements ImageRuntime {
  readonly #options: ComposeImagesOptions;

  constructor(options: ComposeImagesOptions) {
    this.#options = options;
  }

  async needs({ id, adopted }: RunnableApp): Promise<EngineNeeds> {
    const document = (await this.#options.projects.lastDocument(id)) ?? {};
    const volumes = Object.entries(recordOf(document["volumes"])).map(([key, volume]) =>
      volumeName(recordOf(volume), key, this.#options.ownership.projectOf(id)),
    );
    return { images: imagesOf(document), volumes: [...volumes, ...Object.values(adopted?.volumes ?? {})] };
  }

  /** One result per service. */
  async image(
    app: RunnableApp,
    options: { checkRemote: boolean; signal?: AbortSignal },
  ): Promise<RuntimeImage> {
    const services = referencesOf((await this.#options.projects.lastDocument(app.id)) ?? {});
    const references = [...new Set(services.values())];
    const images = await mapBounded(references, maxParallelReads, (reference) =>
      describeImage(this.#options, app, reference, options),
    );
    return {
      services: [...services].map(([service, reference]) => ({
        service,
        image: images[references.indexOf(reference)] ?? { reference },
      })),
    };
  }

  /** Pulls the images that may change; the digest is that of the first changed image, else of the first. */
  async pull(app: RunnableApp, work: RuntimeWork): Promise<PulledImages> {
    const { images, projects } = this.#options;
    const { document } = await projects.resolve(app, work.signal);
    const references = referencesOf(document);
    const results = new Map<string, PulledImages>();
    const reasons = new Map<string, string>();
    for (const reference of new Set(references.values())) {
      const reason = reference.startsWith(builtPrefix) ? "the image was built here" : pinnedBy(reference);
      const result = reason === undefined ? await images.pullAgain(app.ownerUid, reference, work) : undefined;
      if (result !== undefined) results.set(reference, result);
      else reasons.set(reference, reason ?? "the image did not come from a registry");
    }
    const services = [...references].map(([service, reference]) => ({
      ...{ service, reference, changed: results.get(reference)?.changed ?? false },
      reason: reasons.get(reference) ?? "",
    }));
    const pulled = [...results.values()];
    const [first] = pulled;
    if (first === undefined) {
      const why = services.map(({ service, reason }) => `${service}: ${reason}`).join("; ");
      const message = `no image of app "${app.id}" can be pulled again (${why}); upgrade the app instead`;
      throw new SvcError("pinned_image", message);
    }
    const { changed, digest } = pulled.find((result) => result.changed) ?? first;
    return { changed, digest, replaced: pulled.flatMap(({ replaced }) => replaced), services };
  }

  restoreNames(replaced: readonly ReplacedImage[]): Promise<void> {
    return this.#options.images.restoreNames(replaced);
  }

  async disk(app: RunnableApp, signal?: AbortSignal): Promise<RuntimeDisk> {
    const { disk, images } = this.#options;
    const needs = await this.needs(app);
    const containers = await new AppContainers(app.id, this.#options).all();
    const names = [...needs.images, ...containers.map(({ imageId }) => imageId)];
    const imageBytes = await images.sizeOf(names, signal);
    // For the measurement the engine scans all its volumes.
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
    const { state, ownership } = this.#options;
    const { containers } = await state.containers();
    return apps.map(({ id }) => ({
      name: ownership.projectOf(id),
      appId: id,
      services: containers
        .filter((container) => ownership.isOwn("container", id, namedObject(container)))
        .toSorted((a, b) => (a.name < b.name ? -1 : 1))
        .map((container) => ({
          name: container.composeService ?? "",
          state: container.state,
          container: container.name,
        })),
    }));
  }
}
