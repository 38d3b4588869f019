/** Runs apps as compose projects on the host's engine. */
import { composeVolumeLabel } from "../../engine/attribution.ts";
import { listedName, type ContainerRecord } from "../../engine/container-record.ts";
import type { DiskMeter } from "../../engine/disk-usage.ts";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { YamlThread } from "../../packages/manifest/yaml-thread.ts";
import type { HostPortRules } from "../containers/container-policy.ts";
import { ContainerRuntime, type ContainerRuntimeOptions } from "../containers/container-runtime.ts";
import { AppImages } from "../docker/app-images.ts";
import type { CredentialsOf } from "../docker/registry-images.ts";
import type { UserBuilds } from "../docker/user-builds.ts";
import type { UserImages } from "../docker/user-images.ts";
import { addressesByPort } from "../containers/published-ports.ts";
import { makeMountTargets } from "../containers/mount-targets.ts";
import { blockedContainer } from "../containers/blocked-containers.ts";
import type { FollowLogOptions, LogOptions } from "../contract.ts";
import type {
  CurrentManifest,
  ImageRuntime,
  PublishedAddresses,
  RuntimeLimit,
  RuntimeWork,
  ResolvedProject,
  DataRuntime,
  ProjectRuntime,
} from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import { withAdoptedObjects } from "./adopted-data.ts";
import { anonymousMountsOf, AnonymousVolumes } from "./anonymous-volumes.ts";
import { CompletedServices } from "./completed-services.ts";
import { ComposeCommand } from "./compose-command.ts";
import type { RunnableProject } from "./compose-document.ts";
import { ComposeImages } from "./compose-images.ts";
import { composeRelease, ComposeProjects } from "./compose-project.ts";
import {
  dependencyDepths,
  imagesOf,
  networkSharers,
  referencesOf,
  restartedWith,
} from "./document-services.ts";
import { recordOf } from "./compose-values.ts";
import { containerPaths } from "./service-mounts.ts";
import { requireOwnedParts } from "./project-ownership.ts";
import { isLeftoverOf } from "./leftover-containers.ts";
import { documentPorts } from "./service-ports.ts";
import { buildForStart, buildProject, imageUses, requireSlowImages } from "./project-images.ts";
import { makeExternal, withSubnets } from "./project-networks.ts";
import { projectClaims } from "./project-claims.ts";
import { ProjectVolumes, type ProjectVolumesOptions } from "./project-volumes.ts";
import { followProjectLog, readProjectLog } from "./project-logs.ts";
import { giveData, serviceData, type ServiceData } from "./service-data.ts";
import { changeVolumeOwner } from "./volume-owner.ts";

export interface ComposeRuntimeOptions extends ContainerRuntimeOptions {
  userHelpers: UserHelpers;
  credentialsOf: CredentialsOf;
  userImages: UserImages;
  userBuilds: UserBuilds;
  /** Measures the engine's volumes. */
  disk: DiskMeter;
  yaml: YamlThread;
  /** The daemon's directory for compose documents. */
  composeDir: string;
  portRules: HostPortRules;
  /** See {@link ProjectVolumesOptions.adoptedVolumes}. */
  adoptedVolumes: ProjectVolumesOptions["adoptedVolumes"];
}

/** Compose is not searched for before the first app. */
export class ComposeRuntime extends ContainerRuntime {
  readonly data: DataRuntime = this;
  readonly projects: ProjectRuntime = this;

  readonly images: ImageRuntime;
  readonly volumes: ProjectVolumes;
  protected readonly hasParts = true;
  readonly #options: ComposeRuntimeOptions;
  readonly #images: AppImages;
  readonly #projects: ComposeProjects;
  readonly #anonymous: AnonymousVolumes;
  readonly #completed = new CompletedServices();

  constructor(options: ComposeRuntimeOptions) {
    super(options);
    this.#options = options;
    this.#images = new AppImages(options);
    this.#projects = new ComposeProjects({
      ...options,
      images: this.#images,
      command: new ComposeCommand(options.userHelpers),
    });
    this.images = new ComposeImages({
      ...options,
      images: this.#images,
      projects: this.#projects,
    });
    this.#anonymous = new AnonymousVolumes({
      ...options,
      containers: (id) => this.appOf(id).containers.infos("all"),
      document: (id) => this.#projects.lastDocument(id),
      spared: async (id) => [
        ...(await this.#projects.externalVolumes(id)),
        ...Object.values(options.adoptedVolumes(id)),
      ],
    });
    this.volumes = new ProjectVolumes({
      ...options,
      mayHave: (id) => this.#projects.hasVolumes(id),
      anonymousMounts: (id) => anonymousMountsOf(this.appOf(id).containers.known()),
      externalNames: (id) => this.#projects.externalVolumes(id),
      release: async (id) => {
        await this.#requireUnused(id, "restored");
        await this.appOf(id).containers.remove();
      },
      touch: (id) => void this.appOf(id),
    });
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    this.begin(app);
    this.#completed.forget(app.id);
    const project = await this.#projects.resolve(app, work.signal);
    await this.reach(app.id);
    await buildProject(this.#images, app, project, work);
    await this.#projects.pull(app, project, work);
    if (app.ownerUid === 0) {
      const { warnings } = await this.#serviceData(app, project.document, work.signal);
      for (const message of warnings) work.onProgress?.({ step: "warning", message });
    }
    if (app.checkout === undefined) await this.#projects.write(app, project.document);
  }

  async #serviceData(app: RunnableApp, document: JsonObject, signal?: AbortSignal): Promise<ServiceData> {
    const userHelper = await this.#options.userHelpers.as(app.uid);
    const references = referencesOf(document);
    const imageUser = async (service: string): Promise<string> =>
      (await this.#images.inspect(references.get(service) ?? "", signal))?.Config.User ?? "";
    return serviceData(app, document, userHelper, imageUser);
  }

  async settle(app: RunnableApp): Promise<void> {
    const document = await this.#projects.lastDocument(app.id);
    if (document === undefined) return;
    await this.reach(app.id);
    const isLeftover = isLeftoverOf(app);
    await this.appOf(app.id).containers.remove(({ isUp }, container) => !isUp && isLeftover(container));
    await this.#anonymous.settle(app.id);
    await this.#images.removeBuilt(app, imagesOf(document));
  }

  async check(app: RunnableApp): Promise<void> {
    await this.#projects.resolve(app);
  }

  describe(app: RunnableApp): Promise<ResolvedProject> {
    return this.#projects.describe(app);
  }

  currentManifest(app: RunnableApp, signal?: AbortSignal): Promise<CurrentManifest> {
    return this.#projects.currentManifest(app, signal);
  }

  async preserveData(app: RunnableApp): Promise<void> {
    await this.#projects.preserveData(app, ["directory", "file"]);
  }

  sharedData(id: string): Promise<string[]> {
    return this.volumes.sharedNames(id);
  }

  copyData(from: RunnableApp, to: RunnableApp, work: RuntimeWork): Promise<number> {
    return this.volumes.copy(from.id, to.id, work);
  }

  protected async checkAgain(app: RunnableApp): Promise<void> {
    await this.#projects.checkLast(app);
    await this.#makeMountTargets(app, (await this.#projects.lastDocument(app.id)) ?? {});
  }

  async #makeMountTargets(app: RunnableApp, document: JsonObject): Promise<void> {
    if (app.ownerUid === 0) return;
    await makeMountTargets(this.#options.userHelpers, app, await containerPaths(this.#images, document));
  }

  protected async launch(app: RunnableApp, work: RuntimeWork): Promise<void> {
    const { signal } = work;
    const noteReplaced = await this.#anonymous.watch(app);
    const checked = await this.#projects.prepareFiles(app, signal);
    await this.#projects.pull(app, checked, { ...work, mayBeOld: true });
    await buildForStart(this.#images, app, checked, work);
    using _counted = await this.#options.userContainers.reserve(app, [
      ...projectClaims(checked.document, this.#options.ownership.projectOf(app.id)),
      ...(await imageUses(this.#images, checked.document)),
    ]);
    await this.#requireFewVolumes(app, checked);
    const adopted = withAdoptedObjects(checked.document, app);
    using placed = await withSubnets(adopted, app, this.#options.networks);
    const project = { ...checked, document: placed.document };
    await makeExternal(project.document, app, this.#options.networks);
    if (app.ownerUid !== 0) await requireSlowImages(this.#images, project.document);
    if (app.uid === 0) {
      const data = await this.#serviceData(app, project.document, signal);
      await giveData(app, data, this.#options.userHelpers);
    }
    await this.#makeMountTargets(app, project.document);
    await requireOwnedParts(this.#options, app, project.document);
    const watched = this.appOf(app.id);
    const before = await watched.containers.all();
    const completed = this.#completed.of(app.id, checked);
    try {
      await watched.start(app, composeRelease, async () => {
        if (app.ownerUid !== 0) {
          await this.#projects.up(app, project, "--no-start", { signal });
          // The app's parts may have changed since the check. From here on, volumes are given to the app's owner.
          await requireOwnedParts(this.#options, app, project.document);
          await this.#changeVolumeOwner(app);
          await this.#removeDetached(app, project);
        }
        const startedAtMs = Date.now();
        try {
          await this.#up(app, project, { completed, signal });
        } finally {
          // Before a failed start ends its containers, which may also exit with code 0.
          const containers = await watched.containers.all().catch(() => []);
          this.#completed.note(app.id, checked, containers, startedAtMs);
        }
        return watched.containers.listed("all");
      });
      this.#completed.forget(app.id);
    } catch (error) {
      await noteReplaced(before, false);
      throw error;
    }
    await noteReplaced(before, true);
    await this.#images.removeNameless(before).catch((error: unknown) => {
      this.#options.log.warn({ app: app.id, err: error }, "failed to remove earlier images of a project");
    });
  }

  async #requireFewVolumes(app: RunnableApp, { document }: RunnableProject): Promise<void> {
    const declared = Object.entries(recordOf(document["volumes"]));
    if (app.ownerUid === 0 || declared.length === 0) return;
    const own = await this.volumes.all(app.id);
    const existing = new Set(own.map(({ Labels: labels }) => labels[composeVolumeLabel]));
    const missing = declared.filter(([key]) => !existing.has(key)).map(([, volume]) => volume);
    await this.#options.userObjects.requireVolumes(app.id, missing);
  }

  /** Replaces containers that the engine cannot start any more; the new ones get their volumes. */
  async #up(
    app: RunnableApp,
    project: RunnableProject,
    options: { completed: ReadonlySet<string>; signal: AbortSignal | undefined },
  ): Promise<void> {
    const replaced = new Set<string>();
    for (;;) {
      try {
        await this.#projects.up(app, project, "--detach", options);
        return;
      } catch (error) {
        const id = blockedContainer(error);
        const service = id && (await this.#options.state.refreshContainer(id))?.composeService;
        if (service === undefined || replaced.has(service)) throw error;
        replaced.add(service);
        await this.#recreate(app, service, options.signal);
      }
    }
  }

  protected async replace(app: RunnableApp, { composeService }: ContainerRecord): Promise<void> {
    if (composeService === undefined) return;
    await this.#recreate(app, composeService);
    await this.#projects.startService(app, composeService);
  }

  async #recreate(app: RunnableApp, service: string, signal?: AbortSignal): Promise<void> {
    await this.#projects.recreate(app, service, signal);
    await this.#changeVolumeOwner(app);
  }

  protected override async dependentsOf(
    app: RunnableApp,
    { composeService = "" }: ContainerRecord,
  ): Promise<readonly string[]> {
    return restartedWith((await this.#projects.lastDocument(app.id)) ?? {}, composeService);
  }

  /** Only for containers that never ran: creating a container can reset the owner of an empty volume. */
  async #changeVolumeOwner(app: RunnableApp): Promise<void> {
    const { engine, userHelpers, ownership } = this.#options;
    if (app.ownerUid === 0) return;
    const containers = await this.appOf(app.id).containers.infos("all");
    const { user: owner } = await userHelpers.as(app.uid);
    await changeVolumeOwner({
      ...{ engine, what: `change the owner of the volumes of app "${app.id}"`, owner },
      containers: containers.filter(({ State }) => State === "created"),
      name: `${ownership.projectOf(app.id)}-volumes`,
      labels: ownership.labels("container", app.id),
    });
  }

  /**
   * Removes created containers that lack the network of another service, so that they are created again once that service
   * runs: docker-compose 1.29 attaches them only then, and would otherwise start them on a network of their own.
   */
  async #removeDetached(app: RunnableApp, { document }: RunnableProject): Promise<void> {
    const sharing = new Set(networkSharers(document));
    await this.appOf(app.id).containers.remove(
      ({ isUp }, { composeService = "", networkMode }) =>
        !isUp && sharing.has(composeService) && !networkMode.startsWith("container:"),
    );
  }

  protected async toPublish({ id }: RunnableApp): Promise<PublishedAddresses> {
    const ports = documentPorts((await this.#projects.lastDocument(id)) ?? {});
    return addressesByPort(
      ports.map(({ address, published, protocol }) => ({
        address: address || this.#options.publishAddress,
        port: Number.parseInt(published, 10) || 0,
        protocol,
      })),
    );
  }

  protected async end(app: RunnableApp): Promise<void> {
    this.#completed.forget(app.id);
    const depths = dependencyDepths((await this.#projects.lastDocument(app.id)) ?? {});
    await this.appOf(app.id).stop(app, (service) => depths.get(service) ?? 0);
  }

  protected async clear(app: RunnableApp, keep?: "volumes"): Promise<number> {
    const freed = this.isUntouched(app.id) ? 0 : await this.#removeFromEngine(app, keep);
    await this.#projects.forget(app.id);
    this.#completed.forget(app.id);
    this.forget(app.id);
    return freed;
  }

  async #removeFromEngine(app: RunnableApp, keep: "volumes" | undefined): Promise<number> {
    if (keep === undefined) await this.#requireUnused(app.id, "removed");
    const removed = await this.appOf(app.id).containers.remove();
    await this.#anonymous.removeOf(app.id, removed);
    await this.#options.networks.remove(app.id);
    const imagesFreed = await this.#images.removeBuilt(app, []);
    await this.#images.removeNameless(removed);
    // Volumes last, because they cannot be restored.
    return (
      imagesFreed +
      (keep === undefined ? await this.volumes.removeAll(await this.volumes.created(app.id)) : 0)
    );
  }

  /** @throws SvcError `failed_precondition` when a container of another owner uses a volume of the app */
  async #requireUnused(id: string, what: "removed" | "restored"): Promise<void> {
    const volumes = await (what === "removed" ? this.volumes.created(id) : this.volumes.all(id));
    const names = volumes.map(({ Name }) => Name);
    if (names.length === 0) return;
    // From the engine: memory may lack a container that started a moment ago.
    const users = await this.#options.engine.call(
      `list the containers with volumes of app "${id}"`,
      (docker) => docker.listContainers({ all: true, filters: { volume: names } }),
    );
    for (const user of users) {
      const { Names: containerNames, Labels: labels } = user;
      if (this.#options.ownership.isOwn("container", id, { labels, names: containerNames })) continue;
      const used = user.Mounts.find(({ Name = "" }) => names.includes(Name))?.Name ?? "";
      const message = `app "${id}" cannot be ${what}: its volume ${used} is used by container ${listedName(user)}, which does not belong to the app; remove that container first`;
      throw new SvcError("not_possible", message);
    }
  }

  async logs(app: RunnableApp, options: LogOptions): Promise<LogChunk> {
    return readProjectLog(this.#options.engine, await this.appOf(app.id).logSources(), options);
  }

  /** Ends when no service runs any more. */
  async *followLogs(
    app: RunnableApp,
    { after, ...options }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    const watched = this.appOf(app.id);
    const sources = await watched.logSources();
    const membersNow = (): typeof sources => (watched.members.length > 0 ? watched.members : sources);
    yield* followProjectLog(this.#options.engine, { ...options, sinceMs: after?.timeMs, membersNow });
  }

  /**
   * None: the manifest's limits are for a single process or container; a project's limits are in its compose file.
   */
  override limits(app: RunnableApp): RuntimeLimit[] {
    return super.limits(app).map((limit) => ({ ...limit, enforced: false }));
  }
}
