/** Apps that are compose projects, on the host's engine. */
import type { ContainerInfo } from "dockerode";
import {
  appLabels,
  composeProjectOf,
  composeServiceLabel,
  composeVolumeLabel,
  isMadeFor,
  madeForFilter,
  type Labels,
} from "../../docker/attribution.ts";
import { listedName, type ContainerRecord } from "../../docker/container-record.ts";
import type { DiskMeter } from "../../docker/disk-usage.ts";
import { SvcError } from "../../errors.ts";
import type { Identities } from "../../identity/identities.ts";
import type { YamlThread } from "../../packages/yaml-thread.ts";
import { ContainerRuntime, type ContainerRuntimeOptions } from "../container-runtime.ts";
import { AppImages, type CredentialsOf } from "../docker/app-images.ts";
import { addressesByPort } from "../published-ports.ts";
import { stuckContainer } from "../stuck-containers.ts";
import type {
  ImageRuntime,
  LogChunk,
  PublishedAddresses,
  RunnableApp,
  FollowLogOptions,
  RuntimeLimit,
  RuntimeWork,
  ToldProject,
} from "../runtime.ts";
import { ComposeCommand } from "./compose-command.ts";
import type { RunnableProject } from "./compose-document.ts";
import { ComposeImages } from "./compose-images.ts";
import {
  composeRelease,
  ComposeProjects,
  dependencyDepths,
  imagesOf,
  referencesOf,
} from "./compose-project.ts";
import { recordOf } from "./compose-values.ts";
import { requireOwnParts } from "./foreign-parts.ts";
import { givenUpBy } from "./given-up-containers.ts";
import { documentPorts } from "./service-ports.ts";
import { buildMissing, buildProject, pullMissing } from "./project-images.ts";
import { makeExternal, withSubnets } from "./project-networks.ts";
import { ProjectVolumes } from "./project-volumes.ts";
import { followProjectLog, readProjectLog } from "./project-logs.ts";
import { unwritableBinds } from "./unwritable-binds.ts";
import { handVolumesOver } from "./volume-owner.ts";

export interface ComposeRuntimeOptions extends ContainerRuntimeOptions {
  identities: Identities;
  credentialsOf: CredentialsOf;
  /** What the engine's volumes take. */
  disk: DiskMeter;
  yaml: YamlThread;
  /** The daemon's own directory for what it has compose run. */
  composeDir: string;
  /** Ports below it are root's. */
  unprivilegedPortStart: number;
}

/** Compose is not looked for before the first app. */
export class ComposeRuntime extends ContainerRuntime {
  readonly images: ImageRuntime;
  readonly volumes: ProjectVolumes;
  protected readonly hasParts = true;
  readonly #options: ComposeRuntimeOptions;
  readonly #images: AppImages;
  readonly #projects: ComposeProjects;

  constructor(options: ComposeRuntimeOptions) {
    super(options);
    this.#options = options;
    this.#images = new AppImages(options);
    this.#projects = new ComposeProjects({
      ...options,
      images: this.#images,
      command: new ComposeCommand(options.identities),
    });
    this.images = new ComposeImages({
      ...options,
      images: this.#images,
      projects: this.#projects,
    });
    this.volumes = new ProjectVolumes({
      ...options,
      mayHave: (id) => this.#projects.hasVolumes(id),
      release: async (id) => {
        await this.#requireUnused(id, "restored");
        await this.appOf(id).containers.remove();
      },
      touch: (id) => void this.appOf(id),
    });
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    this.begin(app);
    const project = await this.#projects.resolve(app, work.signal);
    await this.reach(app.id);
    await buildProject(this.#images, app, project, work);
    await pullMissing(this.#images, app, project, work);
    if (app.ownerUid === 0) await this.#tellUnwritable(app, project, work);
    if (app.checkout === undefined) await this.#projects.write(app, project.document);
  }

  async #tellUnwritable(app: RunnableApp, { document }: RunnableProject, work: RuntimeWork): Promise<void> {
    const identity = await this.#options.identities.as(app.uid);
    const references = referencesOf(document);
    const imageUser = async (service: string): Promise<string> =>
      (await this.#images.inspect(references.get(service) ?? "", work.signal))?.Config.User ?? "";
    for (const message of await unwritableBinds(app, document, identity, imageUser)) {
      work.onProgress?.({ step: "warning", message });
    }
  }

  async settle(app: RunnableApp): Promise<void> {
    const document = await this.#projects.kept(app.id);
    if (document === undefined) return;
    await this.reach(app.id);
    const isGivenUp = givenUpBy(app);
    await this.appOf(app.id).containers.remove(({ isUp }, container) => !isUp && isGivenUp(container));
    await this.#images.removeBuilt(app, imagesOf(document));
  }

  async check(app: RunnableApp): Promise<void> {
    await this.#projects.resolve(app);
  }

  told(app: RunnableApp): Promise<ToldProject> {
    return this.#projects.told(app);
  }

  async keepData(app: RunnableApp): Promise<void> {
    await this.#projects.keepData(app, ["directory", "file"]);
  }

  sharedData(id: string): Promise<string[]> {
    return this.volumes.sharedNames(id);
  }

  copyData(from: RunnableApp, to: RunnableApp, work: RuntimeWork): Promise<number> {
    return this.volumes.copy(from.id, to.id, work);
  }

  protected checkAgain(app: RunnableApp): Promise<void> {
    return this.#projects.checkKept(app);
  }

  protected async launch(app: RunnableApp): Promise<void> {
    const checked = await this.#projects.layOut(app);
    using placed = await withSubnets(checked.document, app.id, this.#options.networks);
    const project = { ...checked, document: placed.document };
    await requireOwnParts(this.#options, app, project.document);
    await makeExternal(project.document, this.#options.networks);
    await pullMissing(this.#images, app, project, {});
    await buildMissing(this.#images, app, project);
    const watched = this.appOf(app.id);
    const before = await watched.containers.all();
    await watched.start(app, composeRelease, async () => {
      if (app.ownerUid !== 0 && (await this.#hasNew(app, project))) {
        await this.#projects.up(app, project, "--no-start");
        // Somebody may have been quicker; what is handed over now is the app's.
        await requireOwnParts(this.#options, app, project.document);
        await this.#handVolumesOver(app);
      }
      await this.#up(app, project);
      return watched.containers.listed("all");
    });
    await this.#images.removeNameless(before).catch((error: unknown) => {
      this.#options.log.warn(
        { app: app.id, err: error },
        "images that a project ran before could not be removed",
      );
    });
  }

  /** Of services whose containers the engine cannot start any more others are made, which get their volumes. */
  async #up(app: RunnableApp, project: RunnableProject): Promise<void> {
    const replaced = new Set<string>();
    for (;;) {
      try {
        await this.#projects.up(app, project, "--detach");
        return;
      } catch (error) {
        const id = stuckContainer(error);
        const service = id && (await this.#options.state.refreshContainer(id))?.composeService;
        if (service === undefined || replaced.has(service)) throw error;
        replaced.add(service);
        await this.#projects.makeAnew(app, service, "--no-start");
      }
    }
  }

  protected async replace(app: RunnableApp, { composeService }: ContainerRecord): Promise<void> {
    if (composeService !== undefined) await this.#projects.makeAnew(app, composeService, "--detach");
  }

  /** As the engine has them now: those that compose has just made, before their events have come. */
  #containers(id: string): Promise<ContainerInfo[]> {
    const { engine, storeId } = this.#options;
    return engine.call(`list the containers of app "${id}"`, (docker) =>
      docker.listContainers({ all: true, filters: madeForFilter(id, storeId) }),
    );
  }

  /** Whether it has services that never ran, or volumes that are not there. */
  async #hasNew(app: RunnableApp, { document }: RunnableProject): Promise<boolean> {
    const ran = (await this.#containers(app.id)).filter(({ State }) => State !== "created");
    const known = new Set(ran.map(({ Labels }) => Labels[composeServiceLabel]));
    const volumes = new Set(
      (await this.volumes.all(app.id)).map(({ Labels }) => (Labels as Labels | null)?.[composeVolumeLabel]),
    );
    return (
      Object.keys(recordOf(document["services"])).some((service) => !known.has(service)) ||
      Object.keys(recordOf(document["volumes"])).some((volume) => !volumes.has(volume))
    );
  }

  async #handVolumesOver(app: RunnableApp): Promise<void> {
    const { engine, identities, storeId } = this.#options;
    const { user: owner } = await identities.as(app.uid);
    await handVolumesOver({
      ...{ engine, what: `give the volumes of app "${app.id}" to its owner`, owner },
      containers: await this.#containers(app.id),
      name: `${composeProjectOf(app.id)}-volumes`,
      labels: appLabels(app.id, storeId),
    });
  }

  protected async toPublish({ id }: RunnableApp): Promise<PublishedAddresses> {
    const ports = documentPorts((await this.#projects.kept(id)) ?? {});
    return addressesByPort(
      ports.map(({ address, published, protocol }) => ({
        address: address || "0.0.0.0",
        port: Number.parseInt(published, 10) || 0,
        protocol,
      })),
    );
  }

  protected async end(app: RunnableApp): Promise<void> {
    const depths = dependencyDepths((await this.#projects.kept(app.id)) ?? {});
    await this.appOf(app.id).stop(app, (service) => depths.get(service) ?? 0);
  }

  protected async clear(app: RunnableApp, keep?: "volumes"): Promise<number> {
    const freed = this.isUntouched(app.id) ? 0 : await this.#removeFromEngine(app, keep);
    await this.#projects.forget(app.id);
    this.forget(app.id);
    return freed;
  }

  async #removeFromEngine(app: RunnableApp, keep: "volumes" | undefined): Promise<number> {
    if (keep === undefined) await this.#requireUnused(app.id, "removed");
    const removed = await this.appOf(app.id).containers.remove();
    await this.#options.networks.remove(app.id);
    const imagesFreed = await this.#images.removeBuilt(app, []);
    await this.#images.removeNameless(removed);
    // What cannot be had again goes last.
    return (
      imagesFreed + (keep === undefined ? await this.volumes.removeAll(await this.volumes.all(app.id)) : 0)
    );
  }

  /** @throws SvcError `failed_precondition` when a container of somebody else uses a volume of the app */
  async #requireUnused(id: string, what: "removed" | "restored"): Promise<void> {
    const names = (await this.volumes.all(id)).map(({ Name }) => Name);
    if (names.length === 0) return;
    // Asked of the engine itself: a container that began a moment ago would be found when the app's own are gone.
    const users = await this.#options.engine.call(
      `list the containers with volumes of app "${id}"`,
      (docker) => docker.listContainers({ all: true, filters: { volume: names } }),
    );
    for (const user of users) {
      if (isMadeFor(id, this.#options.storeId, user.Labels)) continue;
      const used = user.Mounts.find(({ Name = "" }) => names.includes(Name))?.Name ?? "";
      const message = `app "${id}" cannot be ${what}: its volume ${used} is used by container ${listedName(user)}, which is not the app's: remove that first`;
      throw new SvcError("not_possible", message);
    }
  }

  async logs(app: RunnableApp, { tail, signal }: { tail: number; signal?: AbortSignal }): Promise<LogChunk> {
    const containers = await this.appOf(app.id).logSources();
    return readProjectLog(this.#options.engine, containers, { tail, ...(signal && { signal }) });
  }

  /** Ends when no service runs any more. */
  async *followLogs(
    app: RunnableApp,
    { tail, after, signal }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    const watched = this.appOf(app.id);
    const sources = await watched.logSources();
    const membersNow = (): typeof sources => (watched.members.length > 0 ? watched.members : sources);
    yield* followProjectLog(this.#options.engine, { tail, afterMs: after?.timeMs, signal, membersNow });
  }

  /** Limits of the manifest are for one process or container; a project's stand in its compose file. */
  override limits(app: RunnableApp): RuntimeLimit[] {
    return super.limits(app).map((limit) => ({ ...limit, enforced: false }));
  }
}
