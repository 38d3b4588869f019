/**
 * The host's container engine and its runtimes. Nothing is loaded or queried before the first app that needs the
 * engine.
 */
import { join } from "node:path";
import type { Credentials } from "../access/credentials.ts";
import { SetOnce } from "../lib/set-once.ts";
import { ContainerPrograms } from "../engine/container-programs.ts";
import { DiskMeter } from "../engine/disk-usage.ts";
import { EngineEvents } from "../engine/events.ts";
import { EngineProbe } from "../engine/engine-probe.ts";
import { EngineState } from "../engine/engine-state.ts";
import { createDockerEngine, type DockerEngine } from "../engine/engine.ts";
import { parseImageReference } from "../engine/image-reference.ts";
import { WatchedEngine } from "../engine/watched-engine.ts";
import { createOwnership, type EngineOwnership } from "../engine/ownership.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import { transportFor, type EngineNetwork } from "../engine/registry-transport.ts";
import { parseSubnet, type Subnet } from "../engine/subnets.ts";
import { AppNetworks } from "../runtimes/containers/app-networks.ts";
import { readUnprivilegedPortStart } from "../runtimes/containers/container-policy.ts";
import { ComposeRuntime } from "../runtimes/compose/compose-runtime.ts";
import { Systemd } from "../runtimes/systemd/systemd.ts";
import { UserBuilds } from "../runtimes/docker/user-builds.ts";
import { UserImages, type UnlistedImage, type UserImagesOptions } from "../runtimes/docker/user-images.ts";
import { DockerRuntime } from "../runtimes/docker/docker-runtime.ts";
import { forbidEngineRestarts } from "../runtimes/containers/engine-restarts.ts";
import { endUnknownTasks } from "../runtimes/containers/unknown-tasks.ts";
import { SwarmApi } from "../runtimes/swarm/swarm-api.ts";
import { swarmUsage } from "../runtimes/swarm/swarm-usage.ts";
import { UserObjects } from "../runtimes/containers/user-objects.ts";
import { UserContainers } from "../runtimes/containers/user-containers.ts";
import { SwarmRuntime } from "../runtimes/swarm/swarm-runtime.ts";
import type { YamlThread } from "../packages/manifest/yaml-thread.ts";
import type { AppRuntime } from "../runtimes/contract.ts";
import type { Executor } from "../store/executors.ts";
import type { Store } from "../store/store.ts";
import { readMaxUserProcesses } from "../sys/user-processes.ts";
import type { Config } from "./config.ts";
import type { DaemonLog } from "./log.ts";

export interface ContainerEngineOptions {
  config: Config;
  store: Store;
  /** This process. */
  executor: Executor;
  userHelpers: UserHelpers;
  credentials: Credentials;
  /** Reads compose files, and applies ignore files. */
  yaml: YamlThread;
  /** A container that ends this soon after its start has failed to start. */
  settleMs: number;
  now: () => number;
  log: DaemonLog;
}

export interface ContainerEngine extends AsyncDisposable {
  /** Sets the source of image references that installed apps use, by app ID. Called once, before any app starts. */
  readonly imageNeeds: Pick<SetOnce<UserImagesOptions["needs"]>, "set">;
  /** See {@link UserImages.unlisted}. */
  readonly unlistedImages: () => Promise<readonly UnlistedImage[]>;
  readonly engine: DockerEngine;
  readonly probe: EngineProbe;
  readonly events: EngineEvents;
  readonly state: EngineState;
  readonly disk: DiskMeter;
  readonly ownership: EngineOwnership;
  readonly runtimes: ReadonlyMap<string, AppRuntime>;
}

export async function createContainerEngine(options: ContainerEngineOptions): Promise<ContainerEngine> {
  const { config, store, executor, userHelpers, credentials, settleMs, now, log } = options;
  const ownership = createOwnership(store);
  await using resources = new AsyncDisposableStack();
  const plain = resources.use(createDockerEngine({ socket: config.docker.socket }));
  const events = resources.use(new EngineEvents({ engine: plain, log }));
  const engine = new WatchedEngine(plain, events);
  const state = resources.use(new EngineState({ engine, events, now, log }));
  const disk = new DiskMeter(engine);
  const imageNeeds = new SetOnce<UserImagesOptions["needs"]>("the images of apps");
  const userImages = resources.use(
    new UserImages({
      ...{ store, events, needs: () => imageNeeds.get()(), now },
      selfUid: userHelpers.selfUid,
      shared: config.docker.sharedImages,
      registries: config.docker.usersRegistries,
    }),
  );
  const networks = new AppNetworks({
    ...{ engine, ownership, ownerOf: (appId: string) => ownerOf(store, appId) },
    pool: poolOf(config),
    maxPerUser: config.limits.maxNetworksPerUser,
  });
  const systemd = new Systemd(userHelpers);
  const userBuilds = new UserBuilds({
    ...{ engine, disk, networks, storeId: ownership.storeId, log },
    limits: config.limits,
    network: config.docker.usersBuildNetwork,
    limitSlice: (slice, properties) => systemd.limitSlice(slice, properties),
  });
  const swarmApi = new SwarmApi({ engine, ownership });
  const shared = {
    ...{ engine, events, state, userHelpers, ownership, settleMs, log },
    yaml: options.yaml,
    credentialsOf: (ownerUid: number, reference: string) => {
      const { host } = parseImageReference(reference);
      const login = credentials.loginFor("registry", host, ownerUid);
      return Promise.resolve(login && { username: login.username, password: login.secret });
    },
    portRules: {
      unprivilegedPortStart: await readUnprivilegedPortStart(),
      daemonPort: config.api.listen.port,
    },
    transportOf: async (host: string) => {
      const info: unknown = await engine.call("describe itself", (docker) => docker.info());
      return transportFor(host, info as EngineNetwork);
    },
    publishAddress: config.docker.publishAddress,
    usersPidsLimit: config.docker.usersPidsLimit,
    maxUserProcesses: await readMaxUserProcesses(),
    userContainers: new UserContainers({
      ...{ state, ownership, limits: config.limits },
      ownerOf: (appId) => ownerOf(store, appId),
      swarmUsage: () => swarmUsage(swarmApi),
    }),
    userObjects: new UserObjects({
      ...{ engine, ownership },
      ownerOf: (appId) => ownerOf(store, appId),
      pulled: () => userImages.pulled(),
      limits: config.limits,
    }),
    networks,
    userBuilds,
    userImages,
    programs: resources.use(new ContainerPrograms({ engine, events, store, executor, log })),
  };
  resources.use(endUnknownTasks(shared));
  resources.use(forbidEngineRestarts(shared));
  const docker = resources.use(new DockerRuntime(shared));
  const forProjects = {
    ...{ ...shared, disk, composeDir: join(config.store.dir, "compose") },
    adoptedVolumes: (appId: string) => adoptedVolumes(store, appId),
  };
  const compose = resources.use(new ComposeRuntime(forProjects));
  const swarm = resources.use(new SwarmRuntime(forProjects));
  const owned = resources.move();
  return {
    probe: new EngineProbe(config.docker.socket),
    ...{ imageNeeds, engine, events, state, disk, ownership },
    unlistedImages: () => userImages.unlisted(),
    runtimes: new Map<string, AppRuntime>([
      ["docker", docker],
      ["compose", compose],
      ["swarm", swarm],
    ]),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function poolOf({ docker, file }: Config): Subnet {
  const pool = parseSubnet(docker.subnetPool);
  if (pool === undefined) throw new Error(`${file} was read with the pool ${docker.subnetPool}`);
  return pool;
}

function adoptedVolumes(store: Pick<Store, "get">, appId: string): Readonly<Record<string, string>> {
  const row = store.get<{ volumes: string | null }>(
    "SELECT json_extract(record, '$.adopted.volumes') AS volumes FROM apps WHERE id = ?",
    appId,
  );
  return JSON.parse(row?.volumes ?? "{}") as Record<string, string>;
}

function ownerOf(store: Pick<Store, "get">, appId: string): number | undefined {
  return store.get<{ owner_uid: number }>("SELECT owner_uid FROM apps WHERE id = ?", appId)?.owner_uid;
}
