/** A docker runtime over an engine of the test's own, and apps that belong to nobody. */
import { chmod, mkdir, mkdtemp } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createDockerEngine } from "../../../src/docker/engine.ts";
import { ContainerPrograms } from "../../../src/docker/container-programs.ts";
import { DiskMeter } from "../../../src/docker/disk-usage.ts";
import { EngineEvents } from "../../../src/docker/events.ts";
import { EngineState } from "../../../src/docker/engine-state.ts";
import { WatchedEngine } from "../../../src/docker/watched-engine.ts";
import { parseSubnet } from "../../../src/docker/subnets.ts";
import { AppNetworks } from "../../../src/runtimes/app-networks.ts";
import { createIdentities, type Identities } from "../../../src/identity/identities.ts";
import { YamlThread } from "../../../src/packages/yaml-thread.ts";
import { ComposeRuntime } from "../../../src/runtimes/compose/compose-runtime.ts";
import { DockerRuntime, type DockerRuntimeOptions } from "../../../src/runtimes/docker/docker-runtime.ts";
import { forbidEngineRestarts } from "../../../src/runtimes/engine-restarts.ts";
import { endForgottenTasks } from "../../../src/runtimes/forgotten-tasks.ts";
import type { RunnableApp } from "../../../src/runtimes/runtime.ts";
import type { JsonObject } from "../../../src/lib/json.ts";
import { parseManifest } from "../../packages/support/manifests.ts";
import type { TestEngine } from "../../support/docker.ts";
import { searchPath } from "../../support/search-path.ts";
import { programs } from "../../support/programs.ts";

export const nobody = 65534;

export interface AppOptions {
  /** Default: the id. */
  version?: string;
  settings?: JsonObject;
  uid?: number;
  /** Files of the checkout, by path. */
  files?: Readonly<Record<string, string>>;
}

export class DockerFixture implements AsyncDisposable {
  readonly engine: TestEngine;
  readonly store: string;
  readonly identities: Identities;
  readonly log: string[] = [];
  readonly runtime: DockerRuntime;
  readonly compose: ComposeRuntime;
  readonly #resources: AsyncDisposableStack;

  private constructor(
    engine: TestEngine,
    store: string,
    dirs: readonly string[],
    overrides: Partial<DockerRuntimeOptions>,
  ) {
    this.engine = engine;
    this.store = store;
    this.identities = createIdentities({ helperPath: programs.identityHelper, searchPath: dirs.join(":") });
    const resources = new AsyncDisposableStack();
    const plain = resources.use(createDockerEngine({ socket: engine.socket }));
    const events = resources.use(new EngineEvents({ engine: plain }));
    const client = new WatchedEngine(plain, events);
    const state = resources.use(new EngineState({ engine: client, events }));
    const say = (details: object, message: string): void =>
      void this.log.push(`${message} ${JSON.stringify(details)}`);
    const log = { info: say, warn: say, error: say };
    const options = {
      ...{ engine: client, events, state, identities: this.identities },
      storeId: "test",
      credentialsOf: async () => undefined,
      settleMs: 300,
      unprivilegedPortStart: 1024,
      usersAddress: "127.0.0.1",
      usersPidsLimit: 500,
      isInsecure: () => Promise.resolve(false),
      networks: new AppNetworks({ engine: client, storeId: "test", pool: parseSubnet(engine.pool)! }),
      programs: resources.use(
        new ContainerPrograms({
          ...{ engine: client, events, log },
          // No terminal is opened over it.
          store: { all: () => [], write: () => Promise.resolve([]) },
          executor: { bootId: "", pid: 0, startTicks: 0 },
        }),
      ),
      ...overrides,
      log,
    };
    resources.use(endForgottenTasks(options));
    resources.use(forbidEngineRestarts(options));
    this.runtime = resources.use(new DockerRuntime(options));
    const disk = new DiskMeter(client);
    const yaml = resources.use(new YamlThread({ threadUrl: programs.settingsThread }));
    this.compose = resources.use(
      new ComposeRuntime({ ...options, disk, yaml, composeDir: join(store, "compose") }),
    );
    this.#resources = resources;
  }

  /**
   * @param store an earlier fixture's, for a daemon that starts over it
   * @param dirs where compose is looked for
   */
  static async create(
    engine: TestEngine,
    overrides: Partial<DockerRuntimeOptions> & { store?: string; dirs?: readonly string[] } = {},
  ): Promise<DockerFixture> {
    const { store = await mkdtemp(join(engine.dir, "store-")), dirs = searchPath, ...options } = overrides;
    await chmod(engine.dir, 0o755);
    await chmod(store, 0o755);
    await mkdir(join(store, "apps"), { recursive: true, mode: 0o755 });
    return new DockerFixture(engine, store, dirs, options);
  }

  /** An app as an install lays it out. @param manifest YAML, without id, name and version */
  async app(id: string, manifest: string, options: AppOptions = {}): Promise<RunnableApp> {
    const { version = "1.0.0", settings = {}, uid = nobody, files = {} } = options;
    const head = `id: ${id}\nname: ${id}\nversion: "${version}"\n`;
    const parsed = await parseManifest(head + manifest);
    const directory = join(this.store, "apps", id);
    const app: RunnableApp = {
      ...{ id, name: id, ownerUid: uid, uid, directory, runDir: join(this.store, "run", id) },
      ...{ version, settings, startedSettings: null, manifest: parsed },
    };
    const identity = await this.identities.as(uid);
    await this.identities.createOwnedDir(directory, uid).catch(() => undefined);
    const volumes = parsed.volumes.map(({ path }) => join("volumes", path));
    await identity.makeDirs(directory, ["repo", "data", "volumes", ...volumes]);
    for (const [path, content] of Object.entries(files)) {
      await identity.makeDirs(directory, [dirname(join("repo", path))]);
      await identity.writeFile(directory, join("repo", path), content);
      await chmod(join(directory, "repo", path), 0o644);
    }
    return app;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync();
    await this.identities[Symbol.asyncDispose]();
  }
}
