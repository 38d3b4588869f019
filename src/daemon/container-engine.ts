/** The host's container engine and the runtimes over it. Nothing is loaded or asked before the first app that needs it. */
import { join } from "node:path";
import type { Credentials } from "../credentials/credentials.ts";
import { ContainerPrograms } from "../docker/container-programs.ts";
import { DiskMeter } from "../docker/disk-usage.ts";
import { EngineEvents } from "../docker/events.ts";
import { EngineState } from "../docker/engine-state.ts";
import { createDockerEngine, type DockerEngine } from "../docker/engine.ts";
import { parseImageReference } from "../docker/image-reference.ts";
import { WatchedEngine } from "../docker/watched-engine.ts";
import type { Identities } from "../identity/identities.ts";
import { isInsecureRegistry, type RegistryConfig } from "../docker/registry-security.ts";
import { parseSubnet, type Subnet } from "../docker/subnets.ts";
import { AppNetworks } from "../runtimes/app-networks.ts";
import { readUnprivilegedPortStart } from "../runtimes/container-policy.ts";
import { ComposeRuntime } from "../runtimes/compose/compose-runtime.ts";
import { DockerRuntime } from "../runtimes/docker/docker-runtime.ts";
import { forbidEngineRestarts } from "../runtimes/engine-restarts.ts";
import { endForgottenTasks } from "../runtimes/forgotten-tasks.ts";
import { SwarmRuntime } from "../runtimes/swarm/swarm-runtime.ts";
import type { YamlThread } from "../packages/yaml-thread.ts";
import type { AppRuntime } from "../runtimes/runtime.ts";
import type { Executor } from "../store/executors.ts";
import type { Store } from "../store/store.ts";
import type { Config } from "./config.ts";
import type { DaemonLog } from "./log.ts";

export interface ContainerEngineOptions {
  config: Config;
  store: Store;
  /** This process. */
  executor: Executor;
  /** Tells what this installation has made from what others have, on an engine that they share. */
  storeId: string;
  identities: Identities;
  credentials: Credentials;
  /** Reads compose files. */
  yaml: YamlThread;
  /** A container that ends this soon after its start has failed to start. */
  settleMs: number;
  now: () => number;
  log: DaemonLog;
}

export interface ContainerEngine extends AsyncDisposable {
  readonly engine: DockerEngine;
  readonly events: EngineEvents;
  readonly state: EngineState;
  readonly disk: DiskMeter;
  readonly storeId: string;
  readonly runtimes: ReadonlyMap<string, AppRuntime>;
}

export async function createContainerEngine(options: ContainerEngineOptions): Promise<ContainerEngine> {
  const { config, store, executor, storeId, identities, credentials, settleMs, now, log } = options;
  await using resources = new AsyncDisposableStack();
  const plain = resources.use(createDockerEngine({ socket: config.docker.socket }));
  const events = resources.use(new EngineEvents({ engine: plain, log }));
  const engine = new WatchedEngine(plain, events);
  const state = resources.use(new EngineState({ engine, events, now, log }));
  const disk = new DiskMeter(engine);
  const shared = {
    ...{ engine, events, state, identities, storeId, settleMs, log },
    credentialsOf: (ownerUid: number, reference: string) => {
      const { host } = parseImageReference(reference);
      const login = credentials.loginFor("registry", host, ownerUid);
      return Promise.resolve(login && { username: login.username, password: login.secret });
    },
    unprivilegedPortStart: await readUnprivilegedPortStart(),
    isInsecure: async (host: string) => {
      const info: unknown = await engine.call("describe itself", (docker) => docker.info());
      const { RegistryConfig: registries } = info as { RegistryConfig?: RegistryConfig | null };
      return isInsecureRegistry(host, registries ?? {});
    },
    usersAddress: config.docker.publishAddress,
    usersPidsLimit: config.docker.usersPidsLimit,
    networks: new AppNetworks({ engine, storeId, pool: poolOf(config) }),
    programs: resources.use(new ContainerPrograms({ engine, events, store, executor, log })),
  };
  resources.use(endForgottenTasks(shared));
  resources.use(forbidEngineRestarts(shared));
  const docker = resources.use(new DockerRuntime(shared));
  const forProjects = { ...shared, disk, yaml: options.yaml, composeDir: join(config.store.dir, "compose") };
  const compose = resources.use(new ComposeRuntime(forProjects));
  const swarm = resources.use(new SwarmRuntime(forProjects));
  const owned = resources.move();
  return {
    ...{ engine, events, state, disk, storeId },
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
