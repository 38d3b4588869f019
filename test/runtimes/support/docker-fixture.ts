/** A docker runtime over a test's engine, and apps that belong to nobody. */
import { chmod, mkdir, mkdtemp } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import { ContainerPrograms } from "../../../src/engine/container-programs.ts";
import { DiskMeter } from "../../../src/engine/disk-usage.ts";
import { EngineEvents } from "../../../src/engine/events.ts";
import { EngineState } from "../../../src/engine/engine-state.ts";
import type { EngineOwnership } from "../../../src/engine/ownership.ts";
import { WatchedEngine } from "../../../src/engine/watched-engine.ts";
import { parseSubnet } from "../../../src/engine/subnets.ts";
import { AppNetworks } from "../../../src/runtimes/containers/app-networks.ts";
import { createUserHelpers, type UserHelpers } from "../../../src/run-as/user-helpers.ts";
import { YamlThread } from "../../../src/packages/manifest/yaml-thread.ts";
import { ComposeRuntime } from "../../../src/runtimes/compose/compose-runtime.ts";
import { userLimits } from "../../../src/daemon/user-limits.ts";
import { defaultsOf } from "../../../src/lib/limit-table.ts";
import { UserBuilds } from "../../../src/runtimes/docker/user-builds.ts";
import { UserImages } from "../../../src/runtimes/docker/user-images.ts";
import type { Store } from "../../../src/store/store.ts";
import { openStore } from "../../store/support/temporary-store.ts";
import { DockerRuntime, type DockerRuntimeOptions } from "../../../src/runtimes/docker/docker-runtime.ts";
import { forbidEngineRestarts } from "../../../src/runtimes/containers/engine-restarts.ts";
import { endUnknownTasks } from "../../../src/runtimes/containers/unknown-tasks.ts";
import { ComposeStacks } from "../../../src/runtimes/swarm/compose-stacks.ts";
import { DockerStacks } from "../../../src/runtimes/swarm/docker-stacks.ts";
import { SwarmApi } from "../../../src/runtimes/swarm/swarm-api.ts";
import { SwarmRuntime } from "../../../src/runtimes/swarm/swarm-runtime.ts";
import { swarmUsage } from "../../../src/runtimes/swarm/swarm-usage.ts";
import type { Stacks } from "../../../src/runtimes/swarm/stack-plan.ts";
import {
  UserContainers,
  type UserContainersOptions,
} from "../../../src/runtimes/containers/user-containers.ts";
import { UserObjects } from "../../../src/runtimes/containers/user-objects.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import type { JsonObject } from "../../../src/lib/json.ts";
import { parseManifest } from "../../packages/support/manifests.ts";
import { testImages, type TestEngine } from "../../support/docker.ts";
import { searchPath } from "../../support/search-path.ts";
import { programs } from "../../support/programs.ts";
import { ownershipIn } from "../../support/ownership.ts";

export const nobody = 65534;

export interface AppOptions {
  /** Default: the ID. */
  version?: string;
  settings?: JsonObject;
  uid?: number;
  /** Files of the checkout, by path. */
  files?: Readonly<Record<string, string>>;
}

type FixtureOverrides = Partial<DockerRuntimeOptions> & {
  limits?: Partial<UserContainersOptions["limits"]> & { maxNetworksPerUser?: number };
  /** The program of user helper processes. */
  helperPath?: string | undefined;
};

export class DockerFixture implements AsyncDisposable {
  readonly engine: TestEngine;
  readonly store: string;
  readonly userHelpers: UserHelpers;
  readonly ownership: EngineOwnership;
  readonly log: string[] = [];
  readonly runtime: DockerRuntime;
  readonly compose: ComposeRuntime;
  /** Apps start on it only if a test has put the engine in a swarm. */
  readonly swarm: SwarmRuntime;
  /** Plans for a swarm; the engine need not be in one. */
  readonly stacks: { readonly docker: Stacks; readonly compose: Stacks };
  readonly #resources: AsyncDisposableStack;
  /** By app. */
  readonly #owners = new Map<string, number>();

  private constructor(
    engine: TestEngine,
    store: string,
    dirs: readonly string[],
    { limits, helperPath = programs.userHelper, ...overrides }: FixtureOverrides,
    database: Store,
  ) {
    this.engine = engine;
    this.store = store;
    this.ownership = overrides.ownership ?? ownershipIn("test");
    this.userHelpers = createUserHelpers({ helperPath, searchPath: dirs.join(":") });
    const resources = new AsyncDisposableStack();
    resources.use(database);
    const plain = resources.use(createDockerEngine({ socket: engine.socket }));
    const events = resources.use(new EngineEvents({ engine: plain }));
    const client = new WatchedEngine(plain, events);
    const state = resources.use(new EngineState({ engine: client, events }));
    const say = (details: object, message: string): void =>
      void this.log.push(`${message} ${JSON.stringify(details)}`);
    const log = { info: say, warn: say, error: say };
    const networks = new AppNetworks({
      ...{ engine: client, ownership: this.ownership, pool: parseSubnet(engine.pool)! },
      ...{ maxPerUser: limits?.maxNetworksPerUser ?? 256, ownerOf: () => undefined },
    });
    const disk = new DiskMeter(client);
    const userImages = new UserImages({
      ...{ store: database, events, selfUid: 0, now: Date.now },
      ...{ shared: testImages, registries: ["*"] },
      needs: async () => new Map(),
    });
    const options = {
      ...{ engine: client, events, state, userHelpers: this.userHelpers },
      yaml: resources.use(new YamlThread({ threadUrl: programs.settingsThread })),
      ownership: this.ownership,
      userImages,
      userObjects: new UserObjects({
        ...{ engine: client, ownership: this.ownership, ownerOf: (id: string) => this.#owners.get(id) },
        pulled: () => userImages.pulled(),
        limits: { maxImageBytesPerUser: 64 * 2 ** 30 },
      }),
      credentialsOf: async () => undefined,
      settleMs: 300,
      portRules: { unprivilegedPortStart: 1024, daemonPort: 0 },
      publishAddress: "127.0.0.1",
      usersPidsLimit: 500,
      maxUserProcesses: 8_000,
      userContainers: new UserContainers({
        ...{ state, ownership: this.ownership, ownerOf: (id: string) => this.#owners.get(id) },
        swarmUsage: () => swarmUsage(new SwarmApi({ engine: client, ownership: this.ownership })),
        limits: { maxContainersPerUser: 64, maxPublishedPortsPerUser: 64, ...limits },
      }),
      transportOf: () => Promise.resolve({}),
      networks,
      userBuilds: new UserBuilds({
        ...{ engine: client, disk, networks, storeId: "test", log },
        limits: defaultsOf(userLimits),
        network: "bridge",
        limitSlice: () => Promise.reject(new Error("the engine of a test has no systemd")),
      }),
      programs: resources.use(
        new ContainerPrograms({
          ...{ engine: client, events, log },
          // No terminal is opened through it.
          store: { all: () => [], write: () => Promise.resolve([]) },
          executor: { bootId: "", pid: 0, startTicks: 0 },
        }),
      ),
      ...overrides,
      log,
    };
    resources.use(endUnknownTasks(options));
    resources.use(forbidEngineRestarts(options));
    this.runtime = resources.use(new DockerRuntime(options));
    const forProjects = {
      ...{ ...options, disk, composeDir: join(store, "compose") },
      adoptedVolumes: () => ({}),
    };
    this.compose = resources.use(new ComposeRuntime(forProjects));
    this.swarm = resources.use(new SwarmRuntime(forProjects));
    this.stacks = {
      docker: new DockerStacks(options),
      compose: new ComposeStacks({ ...forProjects, touch: () => undefined }),
    };
    this.#resources = resources;
  }

  /**
   * @param store an earlier fixture's, for a daemon that starts with it @param dirs directories to search for compose
   */
  static async create(
    engine: TestEngine,
    overrides: FixtureOverrides & { store?: string; dirs?: readonly string[] } = {},
  ): Promise<DockerFixture> {
    const { store = await mkdtemp(join(engine.dir, "store-")), dirs = searchPath, ...options } = overrides;
    await chmod(engine.dir, 0o755);
    await chmod(store, 0o755);
    await mkdir(join(store, "apps"), { recursive: true, mode: 0o755 });
    const database = await openStore({ dir: join(store, "state") });
    return new DockerFixture(engine, store, dirs, options, database);
  }

  /** An app as an install creates it. @param manifest YAML, without id, name and version */
  async app(id: string, manifest: string, options: AppOptions = {}): Promise<RunnableApp> {
    const { version = "1.0.0", settings = {}, uid = nobody, files = {} } = options;
    const head = `id: ${id}\nname: ${id}\nversion: "${version}"\n`;
    const parsed = await parseManifest(head + manifest);
    const directory = join(this.store, "apps", id);
    const app: RunnableApp = {
      ...{ id, name: id, ownerUid: uid, uid, directory, runDir: join(this.store, "run", id) },
      ...{ version, settings, startedSettings: null, manifest: parsed },
    };
    this.#owners.set(id, uid);
    const userHelper = await this.userHelpers.as(uid);
    await this.userHelpers.createOwnedDir(directory, uid).catch(() => undefined);
    const volumes = parsed.volumes.map(({ path }) => join("volumes", path));
    await userHelper.makeDirs(directory, ["repo", "data", "volumes", ...volumes]);
    for (const [path, content] of Object.entries(files)) {
      await userHelper.makeDirs(directory, [dirname(join("repo", path))]);
      await userHelper.writeFile(directory, join("repo", path), content);
      await chmod(join(directory, "repo", path), 0o644);
    }
    return app;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync();
    await this.userHelpers[Symbol.asyncDispose]();
  }
}
