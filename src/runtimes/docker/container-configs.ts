/** The container of an app as it would be made now, and whether its owner may have that. */
import type { DockerEngine } from "../../docker/engine.ts";
import type { Identities } from "../../identity/identities.ts";
import type { AppNetworks } from "../app-networks.ts";
import { requireAllowed } from "../container-policy.ts";
import { missingClock } from "../host-clock.ts";
import { holdMounts } from "../mount-points.ts";
import type { PublishOptions } from "../published-ports.ts";
import type { RunnableApp } from "../runtime.ts";
import type { AppImages } from "./app-images.ts";
import { containerConfig, type ContainerConfig } from "./container-config.ts";
import { createClaims } from "./create-claims.ts";

export interface ContainerConfigsOptions extends PublishOptions {
  engine: DockerEngine;
  identities: Identities;
  networks: AppNetworks;
  storeId: string;
  /** Processes that a regular user's container has at most. */
  usersPidsLimit: number;
  /** Ports below it are root's. */
  unprivilegedPortStart: number;
}

export class ContainerConfigs {
  readonly #options: ContainerConfigsOptions;
  readonly #images: AppImages;

  constructor(options: ContainerConfigsOptions, images: AppImages) {
    this.#options = options;
    this.#images = images;
  }

  /** @param imageId empty while it is not known */
  async of(app: RunnableApp, imageId: string): Promise<ContainerConfig> {
    const { user: owner } = await this.#options.identities.as(app.uid);
    const imageReference = this.#images.reference(app);
    const network = this.#options.networks.nameOf(app.id);
    const absent = await missingClock();
    return containerConfig(app, { ...this.#options, imageId, imageReference, owner, network, absent });
  }

  /** What it is checked for stays as it is from now on. @throws SvcError `denied` */
  async hold(app: RunnableApp, config: ContainerConfig): Promise<void> {
    await holdMounts(this.#options.identities, app, createClaims(config.options, config.network).binds);
    await this.requireAllowed(app, config);
  }

  /** @throws SvcError `denied` */
  async requireAllowed(app: RunnableApp, { options, network }: ContainerConfig): Promise<void> {
    const { identities, engine, unprivilegedPortStart } = this.#options;
    await requireAllowed(app, [createClaims(options, network)], {
      identity: await identities.as(app.uid),
      engineSockets: [engine.socket],
      unprivilegedPortStart,
    });
  }
}
