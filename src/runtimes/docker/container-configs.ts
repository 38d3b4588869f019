/** Creates the current container configuration of an app, and checks what its owner may use. */
import type { ImageInspectInfo } from "dockerode";
import type { Labels } from "../../engine/attribution.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { AppNetworks } from "../containers/app-networks.ts";
import { requireAllowed, type HostPortRules, type PolicyOptions } from "../containers/container-policy.ts";
import { entryType } from "../entry-type.ts";
import { missingClockFiles } from "../containers/host-clock.ts";
import { holdMounts } from "../containers/mount-points.ts";
import { imagePaths, makeMountTargets } from "../containers/mount-targets.ts";
import type { PublishOptions } from "../containers/published-ports.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { AppImages } from "./app-images.ts";
import { containerConfig, type ContainerConfig } from "./container-config.ts";
import { createClaims } from "./create-claims.ts";

export interface ContainerConfigsOptions extends PublishOptions {
  engine: DockerEngine;
  userHelpers: UserHelpers;
  networks: AppNetworks;
  ownership: EngineOwnership;
  /** Default process limit of a regular user's container. */
  usersPidsLimit: number;
  /** Limit of the processes and threads of a regular user, in all containers together. */
  maxUserProcesses: number;
  portRules: HostPortRules;
}

export class ContainerConfigs {
  readonly #options: ContainerConfigsOptions;
  readonly #images: AppImages;

  constructor(options: ContainerConfigsOptions, images: AppImages) {
    this.#options = options;
    this.#images = images;
  }

  /** @param imageId empty if unknown */
  async of(app: RunnableApp, imageId: string): Promise<ContainerConfig> {
    const { user: owner } = await this.#options.userHelpers.as(app.uid);
    const imageReference = this.#images.reference(app);
    const network = this.#options.networks.nameOf(app.id);
    const absent = await missingClockFiles();
    const image = imageId === "" ? undefined : await this.#images.inspect(imageId);
    const imageLabels = image?.Config.Labels as Labels | null | undefined;
    const options = { ...this.#options, imageId, imageReference, imageLabels, owner, network, absent };
    return containerConfig(app, options);
  }

  /**
   * Checks the mounts of a container that is about to start, and keeps them from changing afterwards. @throws
   * SvcError `denied`
   */
  async hold(app: RunnableApp, config: ContainerConfig): Promise<void> {
    const { binds } = createClaims(config.options, config.network);
    const typeOf = await holdMounts(this.#options.userHelpers, app, binds);
    await this.#requireAllowed(app, config, typeOf);
  }

  /** Creates paths that the engine would create as root in the held mounts. @throws SvcError `denied` */
  async makeMountTargets(
    app: RunnableApp,
    { options }: ContainerConfig,
    image: ImageInspectInfo | undefined,
  ): Promise<void> {
    const inherited = imagePaths(image);
    const mounts = (options.HostConfig.Mounts ?? []).map((mount) => ({
      ...{ type: mount.Type, source: mount.Source, target: mount.Target, readOnly: mount.ReadOnly === true },
    }));
    await makeMountTargets(this.#options.userHelpers, app, [
      {
        mounts: [...mounts, ...inherited.mounts],
        workingDir: options.WorkingDir ?? inherited.workingDir,
      },
    ]);
  }

  /** Reports early what {@link hold} would reject; the owner can still change their files. @throws SvcError `denied` */
  async requireAllowed(app: RunnableApp, config: ContainerConfig): Promise<void> {
    const userHelper = await this.#options.userHelpers.as(app.uid);
    await this.#requireAllowed(app, config, (path) => entryType(userHelper, app.directory, path));
  }

  async #requireAllowed(
    app: RunnableApp,
    { options, network }: ContainerConfig,
    typeOf: PolicyOptions["typeOf"],
  ): Promise<void> {
    const { userHelpers, engine, networks, portRules } = this.#options;
    const { user } = await userHelpers.as(app.uid);
    const claims = [createClaims(options, network)];
    await requireAllowed(app, claims, {
      ...{ user, typeOf, engineSockets: [engine.socket], subnetPool: networks.pool },
      ...portRules,
    });
  }
}
