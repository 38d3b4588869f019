/** What svc asks of the swarm that the host's engine manages, in svc's own terms. */
import { promisify } from "node:util";
import {
  appLabel,
  composeServiceLabel,
  madeForFilter,
  storeLabel,
  type Labels,
} from "../../docker/attribution.ts";
import { unlessGone } from "../../docker/engine-errors.ts";
import type { DockerEngine } from "../../docker/engine.ts";
import type { RegistryCredentials } from "../../docker/registry-auth.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { releaseLabel } from "../stuck-containers.ts";

/** A service that svc has made. */
export interface SwarmService {
  readonly id: string;
  readonly appId: string;
  /** Of a compose project; empty for the only one of an app. */
  readonly part: string;
  readonly labels: Labels;
  /** What an update has to name, so that none is lost. */
  readonly version: number;
  readonly replicas: number;
  /** As the engine takes it back. */
  readonly spec: ServiceSpec;
  /** How its last update goes: the engine's words, such as `completed` or `rollback_completed`. */
  readonly update: { readonly state: string; readonly message: string } | undefined;
}

/** As `POST /services/create` takes it; what svc looks at of it. */
export interface ServiceSpec extends JsonObject {
  Name: string;
  Labels: Record<string, string>;
  TaskTemplate: JsonObject;
  Mode: { Replicated: { Replicas: number } };
  EndpointSpec?: { Ports?: { PublishedPort?: number; Protocol?: string }[] };
}

/** One container of a service, from its making to its end. */
export interface SwarmTask {
  readonly id: string;
  readonly serviceId: string;
  readonly appId: string;
  readonly slot: number;
  readonly nodeId: string;
  /** Empty while it was given to none. */
  readonly node: string;
  /** Of that node, as the others reach it; empty where nobody knows. */
  readonly nodeAddress: string;
  /** The swarm's words. */
  readonly state: string;
  readonly desired: string;
  /** What went wrong; empty where nothing did. */
  readonly error: string;
  readonly sinceMs: number;
  readonly createdAtMs: number;
  readonly containerId: string;
  readonly exitCode: number | undefined;
  /** The release that it is of; empty for what an earlier svc made. */
  readonly release: string;
}

/** What people call a task of a service: `2`, or `web 2` where an app has several. */
export function taskName(part: string, slot: number): string {
  return part === "" ? String(slot) : `${part} ${slot}`;
}

export interface SwarmNode {
  readonly id: string;
  readonly name: string;
  /** `ready`, `down`, … */
  readonly state: string;
  readonly address: string;
}

/** What is handed to tasks as files: a secret is kept encrypted, and no answer of the engine shows it. */
export type HandedKind = "secrets" | "configs";

const changeTimeoutMs = 60_000;

interface Request {
  method?: "GET" | "POST" | "DELETE";
  path: string;
  query?: Record<string, string | number>;
  body?: JsonObject;
  credentials?: RegistryCredentials | undefined;
}

/** Methods throw SvcError `unavailable` while the engine is away, or its swarm has no leader. */
export class SwarmApi {
  readonly #engine: DockerEngine;
  readonly #storeId: string;

  constructor(options: { engine: DockerEngine; storeId: string }) {
    this.#engine = options.engine;
    this.#storeId = options.storeId;
  }

  /** The id of this machine's node. @throws SvcError `not_possible` when its engine manages no swarm */
  async managerId(): Promise<string> {
    const info = await this.#ask<EngineInfo>("describe itself", { path: "/info" });
    const { ControlAvailable: manages, NodeID: id, LocalNodeState: state = "inactive" } = info.Swarm ?? {};
    if (manages === true && id !== undefined) return id;
    const why = state === "active" ? "is a worker of its swarm" : "is in no swarm";
    const message = `the container engine ${why}: svc puts apps on a swarm from one of its managers (docker swarm init)`;
    throw new SvcError("not_possible", message);
  }

  /** Whether there is a swarm at all: an engine that has left its own has nothing of it any more. */
  async isMember(): Promise<boolean> {
    const info = await this.#ask<EngineInfo>("describe itself", { path: "/info" });
    return (info.Swarm?.LocalNodeState ?? "inactive") !== "inactive";
  }

  /** @param appId of one app; of all without */
  async services(appId?: string): Promise<SwarmService[]> {
    const what = appId === undefined ? "list services" : `list the services of app "${appId}"`;
    const request = { path: "/services?", query: this.#ours(appId) };
    return (await this.#ask<EngineService[]>(what, request)).map(serviceOf);
  }

  /** As it is now; `undefined` when it is gone. */
  async service(id: string): Promise<SwarmService | undefined> {
    const found = this.#ask<EngineService>(`inspect the service ${id}`, { path: `/services/${id}` });
    const service = await unlessGone(found);
    return service && serviceOf(service);
  }

  async tasks(): Promise<SwarmTask[]> {
    const [nodes, tasks] = await Promise.all([
      this.nodes(),
      this.#ask<EngineTask[]>("list tasks", { path: "/tasks?", query: this.#ours() }),
    ]);
    const known = new Map(nodes.map((node) => [node.id, node]));
    return tasks.map((task) => taskOf(task, known.get(task.NodeID ?? "")));
  }

  async nodes(): Promise<SwarmNode[]> {
    const nodes = await this.#ask<EngineNode[]>("list nodes", { path: "/nodes" });
    return nodes.map(({ ID: id, Description, Status }) => ({
      id,
      name: Description?.Hostname ?? id,
      state: Status?.State ?? "unknown",
      address: Status?.Addr ?? "",
    }));
  }

  /** Resolves with its id. @param credentials what the nodes pull its image with */
  async create(spec: ServiceSpec, credentials?: RegistryCredentials): Promise<string> {
    const request = { method: "POST", path: "/services/create", body: spec, credentials } as const;
    return this.#create(`make the service ${spec.Name}`, request);
  }

  async update(
    { id, version }: Pick<SwarmService, "id" | "version">,
    spec: ServiceSpec,
    credentials?: RegistryCredentials,
  ): Promise<void> {
    const request = { method: "POST", path: `/services/${id}/update`, query: { version } } as const;
    await this.#change(`change the service ${spec.Name}`, { ...request, body: spec, credentials });
  }

  async removeService(id: string): Promise<void> {
    await unlessGone(this.#remove("remove a service", `/services/${id}`));
  }

  /** Has the network be there that tasks of an app share, on whichever node they are. */
  async ensureNetwork(name: string, isInternal: boolean, labels: Labels): Promise<void> {
    const found = this.#ask<unknown>(`inspect the network ${name}`, { path: `/networks/${name}` });
    if ((await unlessGone(found)) !== undefined) return;
    const own = { Name: name, Driver: "overlay", CheckDuplicate: true, Internal: isInternal };
    const body = { ...own, Labels: { ...labels } };
    await this.#change(`make the network ${name}`, { method: "POST", path: "/networks/create", body });
  }

  /** Those of an app. */
  async removeNetworks(appId: string): Promise<void> {
    const { filters } = this.#ours(appId);
    const query = { filters: JSON.stringify({ ...(JSON.parse(filters) as object), scope: ["swarm"] }) };
    const what = `list the networks of app "${appId}"`;
    const found = await this.#ask<{ Id: string }[]>(what, { path: "/networks?", query });
    for (const { Id: id } of found) await unlessGone(this.#remove("remove a network", `/networks/${id}`));
  }

  /** Resolves with the id. */
  async hand(kind: HandedKind, name: string, content: string | Buffer, labels: Labels): Promise<string> {
    const bytes = typeof content === "string" ? Buffer.from(content) : content;
    const body = { Name: name, Labels: { ...labels }, Data: bytes.toString("base64") };
    const request = { method: "POST", path: `/${kind}/create`, body } as const;
    return this.#create(`keep a file of an app among its ${kind}`, request);
  }

  /** Removes what was handed to tasks of an app, but for what a service uses. */
  async removeHanded(appId: string): Promise<void> {
    const query = this.#ours(appId);
    for (const kind of ["secrets", "configs"] as const) {
      const found = await this.#ask<{ ID: string }[]>(`list ${kind}`, { path: `/${kind}?`, query });
      for (const { ID: id } of found) {
        // The engine refuses what is in use.
        await unlessGone(this.#remove(`remove one of the ${kind}`, `/${kind}/${id}`), [
          "not_found",
          "invalid_argument",
          "failed_precondition",
        ]);
      }
    }
  }

  /** @param appId of one app; of all without */
  #ours(appId?: string): { filters: string } {
    const label =
      appId === undefined ? [`${storeLabel}=${this.#storeId}`] : madeForFilter(appId, this.#storeId).label;
    return { filters: JSON.stringify({ label }) };
  }

  async #ask<T>(what: string, request: Request): Promise<T> {
    return this.#engine.call(what, (docker) => dial(docker.modem, request) as Promise<T>);
  }

  async #create(what: string, request: Request): Promise<string> {
    const { ID: id } = (await this.#change(what, request)) as { ID: string };
    return id;
  }

  #remove(what: string, path: string): Promise<unknown> {
    return this.#change(what, { method: "DELETE", path });
  }

  async #change(what: string, request: Request): Promise<unknown> {
    return this.#engine.operate(what, (docker) => dial(docker.modem, request), {
      timeoutMs: changeTimeoutMs,
    });
  }
}

type Modem = { dial: (options: object, callback: (error: unknown, data: unknown) => void) => void };

async function dial(
  modem: unknown,
  { method = "GET", path, query, body, credentials }: Request,
): Promise<unknown> {
  const { dial: send } = modem as Modem;
  return promisify(send.bind(modem))({
    method,
    path,
    statusCodes: { 200: true, 201: true, 204: true },
    options: { ...query, ...body },
    ...(credentials !== undefined && { authconfig: credentials }),
  });
}

interface EngineInfo {
  readonly Swarm?: { NodeID?: string; LocalNodeState?: string; ControlAvailable?: boolean };
}

interface EngineService {
  readonly ID: string;
  readonly Version: { readonly Index: number };
  readonly Spec: ServiceSpec;
  readonly UpdateStatus?: { readonly State?: string; readonly Message?: string };
}

interface EngineTask {
  readonly ID: string;
  readonly CreatedAt: string;
  readonly ServiceID: string;
  readonly NodeID?: string;
  readonly Slot?: number;
  readonly DesiredState?: string;
  readonly Spec?: { readonly ContainerSpec?: { readonly Labels?: Labels } };
  readonly Status?: {
    readonly Timestamp?: string;
    readonly State?: string;
    readonly Err?: string;
    readonly ContainerStatus?: { readonly ContainerID?: string; readonly ExitCode?: number };
  };
}

interface EngineNode {
  readonly ID: string;
  readonly Description?: { readonly Hostname?: string };
  readonly Status?: { readonly State?: string; readonly Addr?: string };
}

function serviceOf({ ID, Version, Spec, UpdateStatus: update }: EngineService): SwarmService {
  return {
    id: ID,
    appId: Spec.Labels[appLabel] ?? "",
    part: Spec.Labels[composeServiceLabel] ?? "",
    labels: Spec.Labels,
    version: Version.Index,
    replicas: Spec.Mode.Replicated.Replicas,
    spec: Spec,
    update: update && { state: update.State ?? "", message: update.Message ?? "" },
  };
}

function taskOf(task: EngineTask, node: SwarmNode | undefined): SwarmTask {
  const {
    State: state = "new",
    Err: error = "",
    Timestamp: since,
    ContainerStatus: container,
  } = task.Status ?? {};
  const createdAtMs = Date.parse(task.CreatedAt);
  const labels = task.Spec?.ContainerSpec?.Labels ?? {};
  return {
    id: task.ID,
    serviceId: task.ServiceID,
    appId: labels[appLabel] ?? "",
    slot: task.Slot ?? 0,
    nodeId: task.NodeID ?? "",
    node: node?.name ?? "",
    nodeAddress: node?.address ?? "",
    state,
    desired: task.DesiredState ?? "",
    error,
    sinceMs: since === undefined ? createdAtMs : Date.parse(since),
    createdAtMs,
    containerId: container?.ContainerID ?? "",
    exitCode: container?.ExitCode,
    release: labels[releaseLabel] ?? "",
  };
}
