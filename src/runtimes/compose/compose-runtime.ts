/** Apps that are compose projects, on the host's engine. */
import { relative } from "node:path";
import { madeForFilter } from "../../docker/attribution.ts";
import type { DiskMeter } from "../../docker/disk-usage.ts";
import type { Identities } from "../../identity/identity.ts";
import { ContainerRuntime, type ContainerRuntimeOptions } from "../container-runtime.ts";
import { AppImages, type CredentialsOf } from "../docker/app-images.ts";
import type { ImageRuntime, LogChunk, RunnableApp, RuntimeLimit, RuntimeWork } from "../runtime.ts";
import { ComposeCommand } from "./compose-command.ts";
import type { RunnableProject } from "./compose-document.ts";
import { ComposeImages } from "./compose-images.ts";
import { composeRelease, ComposeProjects, dependencyDepths, imagesOf } from "./compose-project.ts";
import { followProjectLog, readProjectLog } from "./project-logs.ts";

export interface ComposeRuntimeOptions extends ContainerRuntimeOptions {
  identities: Identities;
  credentialsOf: CredentialsOf;
  /** What the engine's volumes take. */
  disk: DiskMeter;
  /** The daemon's own directory for what it has compose run. */
  composeDir: string;
  /** Ports below it are root's. */
  unprivilegedPortStart: number;
}

/** Compose is not looked for before the first app. */
export class ComposeRuntime extends ContainerRuntime {
  readonly images: ImageRuntime;
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
      engineSocket: options.engine.socket,
    });
    this.images = new ComposeImages({
      ...options,
      images: this.#images,
      projects: this.#projects,
    });
  }

  async prepare(app: RunnableApp, work: RuntimeWork): Promise<void> {
    this.begin(app.id);
    const project = await this.#projects.resolve(app, work.signal);
    await this.reach(app.id);
    await this.#build(app, project, work);
    await this.#pullMissing(app, project, work);
    await this.#projects.write(app, project.document);
  }

  async #build(app: RunnableApp, { builds }: RunnableProject, work: RuntimeWork): Promise<void> {
    for (const { service, ...source } of builds) {
      const context = relative(app.directory, source.context);
      await this.#images.build(app, { ...source, context }, work, service);
    }
  }

  async #pullMissing(app: RunnableApp, { pulls }: RunnableProject, work: RuntimeWork): Promise<void> {
    for (const reference of pulls) {
      if ((await this.#images.inspect(reference, work.signal)) !== undefined) continue;
      await this.#images.pull(app.ownerUid, reference, work);
    }
  }

  async settle(app: RunnableApp): Promise<void> {
    const document = await this.#projects.kept(app.id);
    if (document === undefined) return;
    await this.reach(app.id);
    await this.#images.removeBuilt(app, imagesOf(document));
  }

  async check(app: RunnableApp): Promise<void> {
    await this.#projects.resolve(app);
  }

  async keepData(app: RunnableApp): Promise<void> {
    await this.#projects.keepData(app, ["directory", "file"]);
  }

  protected checkAgain(app: RunnableApp): Promise<void> {
    return this.#projects.checkKept(app);
  }

  protected async launch(app: RunnableApp): Promise<void> {
    const project = await this.#projects.layOut(app);
    await this.#pullMissing(app, project, {});
    for (const build of project.builds) {
      const tag = this.#images.builtTag(app, build.service);
      // Somebody has removed it.
      if ((await this.#images.inspect(tag)) === undefined) {
        await this.#build(app, { ...project, builds: [build] }, {});
      }
    }
    const watched = this.appOf(app.id);
    await watched.start(app, composeRelease, async () => {
      await this.#projects.up(app, project);
      return watched.containers.listed("all");
    });
  }

  #filters(id: string): { label: string[] } {
    return madeForFilter(id, this.#options.storeId);
  }

  async stop(app: RunnableApp): Promise<void> {
    const depths = dependencyDepths((await this.#projects.kept(app.id)) ?? {});
    await this.appOf(app.id).stop(app, (service) => depths.get(service) ?? 0);
  }

  async remove(app: RunnableApp): Promise<number> {
    const freed = this.isUntouched(app.id) ? 0 : await this.#removeFromEngine(app);
    await this.#projects.forget(app.id);
    this.forget(app.id);
    return freed;
  }

  async #removeFromEngine(app: RunnableApp): Promise<number> {
    await this.appOf(app.id).containers.remove();
    const volumesFreed = await this.#removeVolumes(app.id);
    await this.#removeNetworks(app.id);
    return volumesFreed + (await this.#images.removeBuilt(app, []));
  }

  async #removeVolumes(id: string): Promise<number> {
    const { engine, disk } = this.#options;
    const filters = this.#filters(id);
    const { Volumes } = await engine.call(`list the volumes of app "${id}"`, (docker) =>
      docker.listVolumes({ filters }),
    );
    const names = ((Volumes as typeof Volumes | null) ?? []).map(({ Name }) => Name);
    if (names.length === 0) return 0;
    // What it freed is worth a look, but not a removal that fails.
    const usage = await disk.measure().catch(() => undefined);
    const sizes = new Map(usage?.volumes.map(({ name, sizeBytes }) => [name, sizeBytes]));
    for (const name of names) {
      await engine.call(`remove the volume ${name}`, (docker) => docker.getVolume(name).remove());
    }
    return names.reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0);
  }

  async #removeNetworks(id: string): Promise<void> {
    const { engine } = this.#options;
    const filters = this.#filters(id);
    const networks = await engine.call(`list the networks of app "${id}"`, (docker) =>
      docker.listNetworks({ filters }),
    );
    for (const { Id, Name } of networks) {
      await engine.call(`remove the network ${Name}`, (docker) => docker.getNetwork(Id).remove());
    }
  }

  async logs(app: RunnableApp, { tail, signal }: { tail: number; signal?: AbortSignal }): Promise<LogChunk> {
    const containers = await this.appOf(app.id).logSources();
    return readProjectLog(this.#options.engine, containers, { tail, ...(signal && { signal }) });
  }

  /** Ends when no service runs any more. */
  async *followLogs(
    app: RunnableApp,
    { tail, signal }: { tail: number; signal: AbortSignal },
  ): AsyncGenerator<LogChunk, void> {
    const watched = this.appOf(app.id);
    const sources = await watched.logSources();
    const membersNow = (): typeof sources => (watched.members.length > 0 ? watched.members : sources);
    yield* followProjectLog(this.#options.engine, { tail, signal, membersNow });
  }

  /** Limits of the manifest are for one process or container; a project's stand in its compose file. */
  override limits(app: RunnableApp): RuntimeLimit[] {
    return super.limits(app).map((limit) => ({ ...limit, enforced: false }));
  }
}
