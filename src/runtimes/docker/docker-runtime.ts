/** Runs apps with one container each on the host's engine. */
import { followContainerLog, readContainerLog } from "../../engine/container-logs.ts";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { SvcError } from "../../errors.ts";
import type { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { HostPortRules } from "../containers/container-policy.ts";
import { ContainerRuntime, type ContainerRuntimeOptions } from "../containers/container-runtime.ts";
import { requireBoundedImage, usesOfImage } from "../containers/image-bounds.ts";
import { ownHealth, requireSlowChecks } from "../containers/image-health.ts";
import { blockedContainer } from "../containers/blocked-containers.ts";
import { addressesByPort, publishedPorts } from "../containers/published-ports.ts";
import type { FollowLogOptions, LogOptions } from "../contract.ts";
import type { ImageRuntime, PublishedAddresses, RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import { AppImages, dockerRuntime } from "./app-images.ts";
import type { CredentialsOf } from "./registry-images.ts";
import type { ContainerConfig } from "./container-config.ts";
import { ContainerConfigs } from "./container-configs.ts";
import { createClaims } from "./create-claims.ts";
import { DockerImages } from "./docker-images.ts";
import type { UserBuilds } from "./user-builds.ts";
import type { UserImages } from "./user-images.ts";

export interface DockerRuntimeOptions extends ContainerRuntimeOptions {
  userHelpers: UserHelpers;
  credentialsOf: CredentialsOf;
  userImages: UserImages;
  userBuilds: UserBuilds;
  yaml: YamlThread;
  portRules: HostPortRules;
}

const createTimeoutMs = 60_000;

export class DockerRuntime extends ContainerRuntime {
  readonly images: ImageRuntime;
  protected readonly hasParts = false;
  readonly #options: DockerRuntimeOptions;
  readonly #images: AppImages;
  readonly #configs: ContainerConfigs;

  constructor(options: DockerRuntimeOptions) {
    super(options);
    this.#options = options;
    this.#images = new AppImages(options);
    this.#configs = new ContainerConfigs(options, this.#images);
    this.images = new DockerImages({ ...options, images: this.#images });
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    this.begin(app);
    await this.check(app);
    await this.reach(app.id);
    await this.#images.provide(app, work);
  }

  async settle(app: RunnableApp): Promise<void> {
    const image = await this.#images.local(app);
    const keep = image && (await this.#configs.of(app, image.Id)).release;
    const { containers } = this.appOf(app.id);
    const removed = await containers.remove(({ release, isUp }) => release !== keep && !isUp);
    await this.#images.removeBuilt(app, [this.#images.reference(app)]);
    await this.#images.removeNameless(removed);
  }

  /** Independent of the image. */
  async check(app: RunnableApp): Promise<void> {
    await this.#configs.requireAllowed(app, await this.#configs.of(app, ""));
  }

  protected async checkAgain(app: RunnableApp): Promise<void> {
    const config = await this.#configs.of(app, "");
    await this.#configs.hold(app, config);
    await this.#configs.makeMountTargets(app, config, await this.#images.local(app));
    await this.#ensureNetwork(app);
  }

  /** The network may have been pruned while the app was stopped. */
  async #ensureNetwork(app: RunnableApp): Promise<void> {
    if (dockerRuntime(app).network === "bridge") await this.#options.networks.ensure(app);
  }

  protected async launch(app: RunnableApp, work: RuntimeWork): Promise<void> {
    const image = await this.#images.present(app, work);
    const config = await this.#configs.of(app, image.Id);
    if (app.ownerUid !== 0) {
      requireBoundedImage(image, this.#images.reference(app));
      requireSlowChecks(image, this.#images.reference(app), ownHealth(config.options.Healthcheck));
    }
    await this.#configs.hold(app, config);
    await this.#configs.makeMountTargets(app, config, image);
    using _counted = await this.#options.userContainers.reserve(app, [
      createClaims(config.options, config.network),
      { uses: usesOfImage(image, 1) },
    ]);
    await this.#ensureNetwork(app);
    const watched = this.appOf(app.id);
    await watched.start(app, config.release, async () => {
      const existing = (await watched.containers.all()).find(({ name }) => name === config.name);
      const id = existing?.id ?? (await this.#create(app, config));
      return [await this.#startOrReplace(app, config, id)];
    });
    await watched.containers.removeBlocked();
  }

  /** Resolves to the ID of the running container. */
  async #startOrReplace(app: RunnableApp, config: ContainerConfig, id: string): Promise<string> {
    try {
      await this.appOf(app.id).containers.start(id);
      return id;
    } catch (error) {
      if (blockedContainer(error) !== id) throw error;
    }
    return this.#replace(app, config, id);
  }

  protected async replace(app: RunnableApp, { id, imageId }: ContainerRecord): Promise<void> {
    const asStarted = { ...app, settings: app.startedSettings ?? app.settings };
    await this.#replace(app, await this.#configs.of(asStarted, imageId), id);
    await this.appOf(app.id).containers.removeBlocked();
  }

  /** Resolves to the ID of the container that runs instead. */
  async #replace(app: RunnableApp, config: ContainerConfig, id: string): Promise<string> {
    const { containers } = this.appOf(app.id);
    await containers.renameBlocked({ id, name: config.name });
    const { options } = config;
    const HostConfig = { ...options.HostConfig, VolumesFrom: [id] };
    const other = await this.#create(app, { ...config, options: { ...options, HostConfig } });
    await containers.start(other);
    return other;
  }

  async #create(app: RunnableApp, { name, options }: ContainerConfig): Promise<string> {
    const { engine, state } = this.#options;
    try {
      const { id } = await engine.operate(
        `create the container of app "${app.id}"`,
        (docker) => docker.createContainer(options),
        { timeoutMs: createTimeoutMs },
      );
      return id;
    } catch (error) {
      // An earlier start may have been interrupted after the engine created it.
      if (!(error instanceof SvcError) || error.code !== "already_exists") throw error;
      const found = await state.refreshContainer(name);
      if (found === undefined || !this.appOf(app.id).containers.isOwn(found)) throw error;
      return found.id;
    }
  }

  protected toPublish(app: RunnableApp): Promise<PublishedAddresses> {
    return Promise.resolve(addressesByPort(publishedPorts(app, this.#options)));
  }

  protected async end(app: RunnableApp): Promise<void> {
    await this.appOf(app.id).stop(app);
  }

  protected async clear(app: RunnableApp): Promise<number> {
    let freed = 0;
    if (!this.isUntouched(app.id)) {
      const removed = await this.appOf(app.id).containers.remove();
      await this.#options.networks.remove(app.id);
      freed = await this.#images.removeBuilt(app, []);
      await this.#images.removeNameless(removed);
    }
    this.forget(app.id);
    return freed;
  }

  async logs(app: RunnableApp, { tail, signal }: LogOptions): Promise<LogChunk> {
    const [container] = await this.appOf(app.id).logSources();
    if (container === undefined || tail < 1) return { lines: [], truncated: false, missedBytes: 0 };
    return readContainerLog(this.#options.engine, container, { tail, signal });
  }

  /** Ends when the container ends. */
  async *followLogs(
    app: RunnableApp,
    { tail, after, signal }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    const [container] = await this.appOf(app.id).logSources();
    if (container === undefined) return;
    const start = after === undefined ? { tail } : { tail: Infinity, sinceMs: after.timeMs };
    yield* followContainerLog(this.#options.engine, container, { ...start, signal });
  }
}
