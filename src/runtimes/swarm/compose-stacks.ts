/** Compose projects on a swarm: one swarm service per compose service, on the project's own networks. */
import { relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ImageInspectInfo } from "dockerode";
import { blankedLabels, composeProjectLabel, composeVolumeLabel } from "../../engine/attribution.ts";
import { SvcError } from "../../errors.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject } from "../../lib/json.ts";
import { AppContainers } from "../containers/app-containers.ts";
import type { AppNetworks } from "../containers/app-networks.ts";
import { ComposeCommand } from "../compose/compose-command.ts";
import { ComposeImages, type ComposeImagesOptions } from "../compose/compose-images.ts";
import { ComposeProjects, type ComposeProjectsOptions } from "../compose/compose-project.ts";
import { dependencyDepths, imagesOf } from "../compose/document-services.ts";
import { externalName, isSet, pairsOf, recordOf, textOf, volumeName } from "../compose/compose-values.ts";
import { buildForStart, buildProject } from "../compose/project-images.ts";
import { ProjectVolumes } from "../compose/project-volumes.ts";
import { documentPorts } from "../compose/service-ports.ts";
import { AppImages, type AppImagesOptions } from "../docker/app-images.ts";
import type { ImageRuntime, RuntimeWork } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { secretTexts } from "../secret-texts.ts";
import { keepsData, type VolumePlan } from "./compose-mounts.ts";
import { composeService, type ComposeServiceOptions } from "./compose-service.ts";
import type { TaskFile } from "./task-files.ts";
import { requireBoundedService, serviceImage } from "./service-image.ts";
import {
  requireFewTasks,
  requireNoData,
  requireOpen,
  swarmName,
  withRelease,
  type NetworkPlan,
  type ServicePlan,
  type StackPlan,
  type Stacks,
} from "./stack-plan.ts";
import type { ServiceSpec } from "./swarm-api.ts";

export interface ComposeStacksOptions
  extends
    AppImagesOptions,
    Omit<ComposeProjectsOptions, "images" | "command" | "events">,
    Omit<ComposeImagesOptions, "images" | "projects"> {
  networks: AppNetworks;
  /** Called when objects of the app are created on the swarm. */
  touch: (id: string) => void;
}

/** Properties of a service's image. */
type FoundImage = Pick<ComposeServiceOptions, "image" | "blanked">;

const pollMs = 300;
const releaseTimeoutMs = 30_000;
/** Limit of a swarm's secret or config. */
const maxFileBytes = 1_000 * 1_024;
/** Limit of all secret files, and of all config files, of a regular user's project: they are read into memory at once. */
const maxUserFileBytes = 8 * 2 ** 20;

export class ComposeStacks implements Stacks {
  readonly images: ImageRuntime;
  readonly volumes: ProjectVolumes;
  readonly #options: ComposeStacksOptions;
  readonly #images: AppImages;
  readonly #projects: ComposeProjects;

  constructor(options: ComposeStacksOptions) {
    this.#options = options;
    this.#images = new AppImages(options);
    const command = new ComposeCommand(options.userHelpers);
    this.#projects = new ComposeProjects({ ...options, images: this.#images, command });
    this.images = new ComposeImages({ ...options, images: this.#images, projects: this.#projects });
    this.volumes = new ProjectVolumes({
      ...options,
      mayHave: (id) => this.#projects.hasVolumes(id),
      externalNames: (id) => this.#projects.externalVolumes(id),
      // An app with data in place runs only on this host.
      adoptedVolumes: () => ({}),
      anonymousMounts: () => [],
      release: (id) => this.#untilReleased(id),
    });
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    const project = await this.#projects.resolve(app, work.signal);
    await buildProject(this.#images, app, project, work);
    await this.#projects.pull(app, project, work);
    if (app.checkout === undefined) await this.#projects.write(app, project.document);
  }

  async settle(app: RunnableApp): Promise<void> {
    const document = await this.#projects.lastDocument(app.id);
    if (document !== undefined) await this.#images.removeBuilt(app, imagesOf(document));
  }

  async check(app: RunnableApp): Promise<void> {
    const { document } = await this.#projects.resolve(app);
    // The check depends neither on the node nor on the image.
    const everywhere = (): FoundImage => ({ image: "image@sha256:", blanked: {} });
    this.#require(app, document, await this.#services(app, document, "", everywhere));
  }

  async plan(app: RunnableApp, nodeId: string): Promise<StackPlan> {
    const project = await this.#projects.prepareFiles(app);
    await this.#projects.pull(app, project, { mayBeOld: true });
    await buildForStart(this.#images, app, project, {});
    const { document } = project;
    const images = new Map<string, FoundImage & { readonly local: ImageInspectInfo }>();
    for (const reference of imagesOf(document)) {
      const local = await this.#images.usable(app.ownerUid, reference);
      if (local === undefined) throw new Error(`the image ${reference} was removed right after its pull`);
      images.set(reference, {
        local,
        image: serviceImage(reference, local),
        blanked: blankedLabels(local.Config.Labels),
      });
    }
    const find = (reference: string): FoundImage =>
      images.get(reference) ?? { image: reference, blanked: {} };
    const services = await this.#services(app, document, nodeId, find);
    this.#require(app, document, services);
    for (const service of services) {
      const found = images.get(service.image);
      if (found !== undefined) requireBoundedService(app, service, found.local);
    }
    await this.#projects.write(app, document);
    const depths = dependencyDepths(document);
    const byDepth = Map.groupBy(services, ({ part }) => depths.get(part) ?? 0);
    return {
      networks: this.#networksOf(app, document).flatMap(({ plan }) => plan ?? []),
      steps: [...byDepth].toSorted(([a], [b]) => a - b).map(([, step]) => step),
    };
  }

  async partsWithoutData(app: RunnableApp): Promise<readonly string[] | undefined> {
    const { document } = await this.#projects.resolve(app);
    const volumes = this.#volumesOf(app, document);
    const services = recordOf(document["services"]);
    const hasData = Object.values(services).some((service) => keepsData(recordOf(service), volumes));
    return hasData ? undefined : Object.keys(services);
  }

  async preserveData(app: RunnableApp): Promise<void> {
    await this.#projects.preserveData(app, ["directory", "file"]);
  }

  async remove(app: RunnableApp, keep?: "volumes"): Promise<number> {
    const freed = await this.#images.removeBuilt(app, []);
    const volumes = keep === undefined ? await this.#removeVolumes(app.id) : 0;
    await this.#projects.forget(app.id);
    return freed + volumes;
  }

  #require(app: RunnableApp, document: JsonObject, services: readonly ServicePlan[]): void {
    const tasks = services.reduce((sum, { spec }) => sum + spec.Mode.Replicated.Replicas, 0);
    requireFewTasks(app, tasks);
    requireNoData(
      app,
      services.some(({ spec }) => hasMounts(spec)),
    );
    requireOpen(
      app,
      documentPorts(document).map(({ address, published }) => ({ name: published, address })),
    );
  }

  async #services(
    app: RunnableApp,
    document: JsonObject,
    nodeId: string,
    imageOf: (reference: string) => FoundImage,
  ): Promise<ServicePlan[]> {
    const { ownership, networks } = this.#options;
    const base = networks.nameOf(app.id);
    const names = this.#networksOf(app, document).map(({ key, name }) => [key, name] as const);
    const shared: Omit<ComposeServiceOptions, "name" | keyof FoundImage> = {
      ...{ ownership, nodeId, project: ownership.projectOf(app.id) },
      networks: new Map(names),
      volumes: this.#volumesOf(app, document),
      contents: {
        secrets: await this.#contents(app, document["secrets"]),
        configs: await this.#contents(app, document["configs"]),
      },
      hidden: secretTexts(app),
    };
    return Object.entries(recordOf(document["services"])).map(([part, value]): ServicePlan => {
      const service = recordOf(value);
      const reference = textOf(service["image"]);
      const name = swarmName(base, part);
      const { spec, files } = composeService(app, part, service, {
        ...shared,
        name,
        ...imageOf(reference),
      });
      return { part, spec: withRelease(app, spec, files), files, image: reference };
    });
  }

  /** Names of all networks that services use; the app's own networks have a plan. @throws SvcError `not_possible` */
  #networksOf(
    app: RunnableApp,
    document: JsonObject,
  ): { key: string; name: string; plan: NetworkPlan | undefined }[] {
    const base = this.#options.networks.nameOf(app.id);
    const declared: JsonObject = { default: null, ...recordOf(document["networks"]) };
    return Object.entries(declared).map(([key, value]) => {
      const network = recordOf(value);
      const { driver, external, internal, ipam } = network;
      if (isSet(external)) return { key, name: externalName(network, key), plan: undefined };
      const odd = [
        ...(["", "bridge", "overlay"].includes(textOf(driver)) ? [] : [`the driver "${textOf(driver)}"`]),
        ...(isSet(recordOf(ipam)["config"]) ? ["a subnet of its own"] : []),
      ];
      if (odd.length > 0) {
        const message = `network "${key}" of app "${app.id}" has ${odd.join(" and ")}, which svc does not support for networks on a swarm`;
        throw new SvcError("not_possible", message);
      }
      const name = swarmName(base, key === "default" ? "" : key);
      return { key, name, plan: { name, isInternal: internal === true } };
    });
  }

  #volumesOf(app: RunnableApp, document: JsonObject): Map<string, VolumePlan> {
    const { ownership } = this.#options;
    const project = ownership.projectOf(app.id);
    const labels = { ...ownership.labels("volume", app.id), [composeProjectLabel]: project };
    const volumes = Object.entries(recordOf(document["volumes"])).map(([key, value]) => {
      const volume = recordOf(value);
      const { external, driver, driver_opts: options, labels: more } = volume;
      const isShared = !["", "local"].includes(textOf(driver)) || isSet(options);
      const plan: VolumePlan = {
        ...{ name: volumeName(volume, key, project), driver: textOf(driver) },
        options: pairsOf(options),
        labels: isSet(external) ? {} : { ...pairsOf(more), ...labels, [composeVolumeLabel]: key },
        // A volume with options may be on the network; all others are on one node.
        isLocal: !isShared,
      };
      return [key, plan] as const;
    });
    return new Map(volumes);
  }

  /** Contents of the secret and config files, read as the app's owner. @throws SvcError `denied` if they are too large */
  async #contents(
    app: RunnableApp,
    parts: JsonObject[string] | undefined,
  ): Promise<Map<string, TaskFile["content"]>> {
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const contents = new Map<string, TaskFile["content"]>();
    let leftBytes = app.ownerUid === 0 ? Number.POSITIVE_INFINITY : maxUserFileBytes;
    for (const [key, value] of Object.entries(recordOf(parts))) {
      const { file, content } = recordOf(value);
      const path = textOf(file);
      if (typeof content === "string") contents.set(key, content);
      if (path === "") continue;
      const root = isInside(app.directory, path) ? app.directory : "/";
      const bytes = await userHelper.readFile(root, relative(root, path), { maxBytes: maxFileBytes });
      leftBytes -= bytes.length;
      if (leftBytes < 0) {
        const message = `the secret or config files of app "${app.id}" are larger than ${maxUserFileBytes} bytes in total, which on a swarm only root's apps may have`;
        throw new SvcError("denied", message);
      }
      contents.set(key, bytes);
    }
    return contents;
  }

  /** Waits for the last containers to end. @throws SvcError `not_possible` if one remains */
  async #untilReleased(id: string): Promise<void> {
    const deadlineMs = Date.now() + releaseTimeoutMs;
    const containers = new AppContainers(id, this.#options);
    for (;;) {
      const leftover = await containers.listed("all");
      if (leftover.length === 0) return;
      if (Date.now() > deadlineMs) {
        throw new SvcError(
          "not_possible",
          `containers of app "${id}" still exist; stop the app and try again`,
        );
      }
      await sleep(pollMs);
    }
  }

  async #removeVolumes(id: string): Promise<number> {
    const volumes = await this.volumes.all(id);
    if (volumes.length === 0) return 0;
    await this.volumes.removeHelpers(id);
    await this.#untilReleased(id);
    return this.volumes.removeAll(volumes);
  }
}

function hasMounts({ TaskTemplate: { ContainerSpec: container } }: ServiceSpec): boolean {
  const { Mounts: mounts } = container as { Mounts?: { Type: string }[] };
  return (mounts ?? []).some(({ Type }) => Type !== "tmpfs");
}
