/** Packages of the docker runtime on a swarm: one service each. */
import { blankedLabels } from "../../engine/attribution.ts";
import { AppImages } from "../docker/app-images.ts";
import { ContainerConfigs, type ContainerConfigsOptions } from "../docker/container-configs.ts";
import { DockerImages } from "../docker/docker-images.ts";
import type { ImageRuntime, RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { taskFilesOf } from "./task-files.ts";
import { requireBoundedService, serviceImage } from "./service-image.ts";
import { requirePlaceable, serviceSpec, sharedMounts } from "./service-spec.ts";
import { swarmName, withRelease, type ServicePlan, type StackPlan, type Stacks } from "./stack-plan.ts";

export type DockerStacksOptions = ContainerConfigsOptions &
  ConstructorParameters<typeof AppImages>[0] &
  Omit<ConstructorParameters<typeof DockerImages>[0], "images">;

export class DockerStacks implements Stacks {
  readonly images: ImageRuntime;
  readonly #options: DockerStacksOptions;
  readonly #images: AppImages;
  readonly #configs: ContainerConfigs;

  constructor(options: DockerStacksOptions) {
    this.#options = options;
    this.#images = new AppImages(options);
    this.images = new DockerImages({ ...options, images: this.#images });
    this.#configs = new ContainerConfigs(options, this.#images);
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    await this.#images.provide(app, work);
    for (const [name, path] of Object.entries(taskFilesOf(app).env)) {
      const message = `On a swarm, ${name.slice(0, -"_FILE".length)} is passed as a file: ${name}=${path}`;
      work.onProgress?.({ step: "secrets", message });
    }
  }

  async settle(app: RunnableApp): Promise<void> {
    await this.#images.removeBuilt(app, [this.#images.reference(app)]);
  }

  async check(app: RunnableApp): Promise<void> {
    const config = await this.#configs.of(app, "");
    await this.#configs.requireAllowed(app, config);
    requirePlaceable(app, config, this.#options);
    taskFilesOf(app);
  }

  async plan(app: RunnableApp, nodeId: string): Promise<StackPlan> {
    const local = await this.#images.present(app, {});
    const found = await this.#configs.of(app, local.Id);
    await this.#configs.hold(app, found);
    requirePlaceable(app, found, this.#options);
    const taskFiles = taskFilesOf(app);
    const { ownership, networks } = this.#options;
    const name = swarmName(networks.nameOf(app.id));
    const config = { ...found, network: name };
    const reference = this.#images.reference(app);
    const image = serviceImage(reference, local);
    const { files } = taskFiles;
    const blanked = blankedLabels(local.Config.Labels);
    const options = { ownership, nodeId, taskFiles, blanked, name, image };
    const spec = withRelease(app, serviceSpec(app, config, options), files);
    const service: ServicePlan = { part: "", spec, files, image: reference };
    requireBoundedService(app, service, local);
    return { networks: [{ name, isInternal: false }], steps: [[service]] };
  }

  async partsWithoutData(app: RunnableApp): Promise<readonly string[] | undefined> {
    return sharedMounts(app, await this.#configs.of(app, "")).length > 0 ? undefined : [""];
  }

  remove(app: RunnableApp): Promise<number> {
    return this.#images.removeBuilt(app, []);
  }
}
