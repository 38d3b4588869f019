/** Requests to the swarm that the host's engine manages. */
import { promisify } from "node:util";
import { composeServiceLabel, type Labels } from "../../engine/attribution.ts";
import { unlessGone } from "../../engine/engine-errors.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import type { RegistryCredentials } from "../../engine/registry-auth.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";

/** A service created by svc. */
export interface SwarmService {
  readonly id: string;
  readonly appId: string;
  /** Service of a compose project; empty for a single-service app. */
  readonly part: string;
  readonly labels: Labels;
  /** Must be sent with an update, so that concurrent updates are not lost. */
  readonly version: number;
  readonly replicas: number;
  /** In the form in which the engine accepts it. */
  readonly spec: ServiceSpec;
  /** State of the last update, with the engine's names, such as `completed` or `rollback_completed`. */
  readonly update: { readonly state: string; readonly message: string } | undefined;
}

/** The body of `POST /services/create`, as far as svc reads it. */
export interface ServiceSpec extends JsonObject {
  Name: string;
  Labels: Record<string, string>;
  TaskTemplate: JsonObject;
  Mode: { Replicated: { Replicas: number } };
  EndpointSpec?: { Ports?: { PublishedPort?: number; Protocol?: string; PublishMode?: string }[] };
}

/** One container of a service. */
export interface SwarmTask {
  readonly id: string;
  readonly serviceId: string;
  readonly appId: string;
  readonly slot: number;
  readonly nodeId: string;
  /** Empty while it has no node. */
  readonly node: string;
  /** Address of the node for other nodes; empty if unknown. */
  readonly nodeAddress: string;
  /** Like {@link SwarmNode.state}; empty without a node. */
  readonly nodeState: string;
  /** The swarm's state name. */
  readonly state: string;
  readonly desired: string;
  /** Empty without an error. */
  readonly error: string;
  readonly sinceMs: number;
  readonly createdAtMs: number;
  readonly containerId: string;
  readonly exitCode: number | undefined;
  /** Release that the task belongs to; empty for tasks of earlier svc versions. */
  readonly release: string;
}

/** Display name of a task: `2`, or `web 2` for an app with several services. */
export function taskName(part: string, slot: number): string {
  return part === "" ? String(slot) : `${part} ${slot}`;
}

export interface SwarmNode {
  readonly id: string;
  readonly name: string;
  /** `ready`, `down`, … */
  readonly state: string;
  /** Whether the swarm assigns new tasks to it: it is ready, and neither paused nor drained. */
  readonly takesTasks: boolean;
  readonly address: string;
}

/** Kinds of files for tasks: secrets are stored encrypted, and no response of the engine shows them. */
export type TaskFileKind = "secrets" | "configs";

const changeTimeoutMs = 60_000;

interface Request {
  method?: "GET" | "POST" | "DELETE";
  path: string;
  query?: Record<string, string | number>;
  body?: JsonObject;
  credentials?: RegistryCredentials | undefined;
}

/** Methods throw SvcError `unavailable` while the engine is unreachable or its swarm has no leader. */
export class SwarmApi {
  readonly #engine: DockerEngine;
  readonly #ownership: EngineOwnership;

  constructor(options: { engine: DockerEngine; ownership: EngineOwnership }) {
    this.#engine = options.engine;
    this.#ownership = options.ownership;
  }

  /** ID of this host's node. @throws SvcError `not_possible` when its engine is not a manager of a swarm */
  async managerId(): Promise<string> {
    const info = await this.#ask<EngineInfo>("describe itself", { path: "/info" });
    const { ControlAvailable: manages, NodeID: id, LocalNodeState: state = "inactive" } = info.Swarm ?? {};
    if (manages === true && id !== undefined) return id;
    const why = state === "active" ? "is a worker of its swarm" : "is in no swarm";
    const message = `the container engine ${why}: svc puts apps on a swarm from one of its managers (docker swarm init)`;
    throw new SvcError("not_possible", message);
  }

  /** Whether the engine belongs to a swarm: if it has left, nothing remains of its services. */
  async isMember(): Promise<boolean> {
    const info = await this.#ask<EngineInfo>("describe itself", { path: "/info" });
    return (info.Swarm?.LocalNodeState ?? "inactive") !== "inactive";
  }

  /** @param appId limits the list to one app */
  async services(appId?: string): Promise<SwarmService[]> {
    const what = appId === undefined ? "list services" : `list the services of app "${appId}"`;
    const request = { path: "/services?", query: this.#ownedFilter(appId) };
    const services = (await this.#ask<EngineService[]>(what, request)).map((each) => this.#serviceOf(each));
    return services.filter((service) => service.appId !== "" && service.appId === (appId ?? service.appId));
  }

  /** Current state; `undefined` when it was removed. */
  async service(id: string): Promise<SwarmService | undefined> {
    const found = this.#ask<EngineService>(`inspect the service ${id}`, { path: `/services/${id}` });
    const service = await unlessGone(found);
    return service && this.#serviceOf(service);
  }

  async tasks(): Promise<SwarmTask[]> {
    const [nodes, tasks] = await Promise.all([
      this.nodes(),
      this.#ask<EngineTask[]>("list tasks", { path: "/tasks?", query: this.#ownedFilter() }),
    ]);
    const known = new Map(nodes.map((node) => [node.id, node]));
    const read = tasks.map((task) => taskOf(task, known.get(task.NodeID ?? ""), this.#ownership));
    return read.filter(({ appId }) => appId !== "");
  }

  async nodes(): Promise<SwarmNode[]> {
    const nodes = await this.#ask<EngineNode[]>("list nodes", { path: "/nodes" });
    return nodes.map(({ ID: id, Description, Spec, Status }) => ({
      id,
      name: Description?.Hostname ?? id,
      state: Status?.State ?? "unknown",
      takesTasks: Status?.State === "ready" && Spec?.Availability === "active",
      address: Status?.Addr ?? "",
    }));
  }

  /** Resolves to the service's ID. @param credentials for the nodes to pull the image */
  async create(spec: ServiceSpec, credentials?: RegistryCredentials): Promise<string> {
    const request = { method: "POST", path: "/services/create", body: spec, credentials } as const;
    return this.#create(`create the service ${spec.Name}`, request);
  }

  async update(
    { id, version }: Pick<SwarmService, "id" | "version">,
    spec: ServiceSpec,
    credentials?: RegistryCredentials,
  ): Promise<void> {
    const request = { method: "POST", path: `/services/${id}/update`, query: { version } } as const;
    await this.#change(`update the service ${spec.Name}`, { ...request, body: spec, credentials });
  }

  async removeService(id: string): Promise<void> {
    await unlessGone(this.#remove("remove a service", `/services/${id}`));
  }

  /** Creates the network for the app's tasks on all nodes, unless it exists. */
  async ensureNetwork(appId: string, name: string, isInternal: boolean): Promise<void> {
    const lookup = this.#ask<Labelled>(`inspect the network ${name}`, { path: `/networks/${name}` });
    const found = await unlessGone(lookup);
    if (found !== undefined) {
      if (this.#ownership.isOwn("network", appId, { labels: found.Labels })) return;
      const message = `app "${appId}" cannot start: network ${name} exists and does not belong to the app; remove it: docker network rm ${name}`;
      throw new SvcError("not_possible", message);
    }
    const own = { Name: name, Driver: "overlay", CheckDuplicate: true, Internal: isInternal };
    const body = { ...own, Labels: this.#ownership.labels("network", appId) };
    await this.#change(`create the network ${name}`, { method: "POST", path: "/networks/create", body });
  }

  /** Removes the networks of an app. */
  async removeNetworks(appId: string): Promise<void> {
    const { filters } = this.#ownedFilter(appId);
    const query = { filters: JSON.stringify({ ...(JSON.parse(filters) as object), scope: ["swarm"] }) };
    const what = `list the networks of app "${appId}"`;
    const listed = await this.#ask<(Labelled & { Id: string })[]>(what, { path: "/networks?", query });
    const found = listed.filter(({ Labels: labels }) => this.#ownership.isOwn("network", appId, { labels }));
    for (const { Id: id } of found) await unlessGone(this.#remove("remove a network", `/networks/${id}`));
  }

  /** Creates a secret or config; resolves to its ID. */
  async hand(kind: TaskFileKind, name: string, content: string | Buffer, labels: Labels): Promise<string> {
    const bytes = typeof content === "string" ? Buffer.from(content) : content;
    const body = { Name: name, Labels: { ...labels }, Data: bytes.toString("base64") };
    const request = { method: "POST", path: `/${kind}/create`, body } as const;
    return this.#create(`store a file of an app as one of its ${kind}`, request);
  }

  /** Removes the app's secrets and configs that no service uses. */
  async removeTaskFiles(appId: string): Promise<void> {
    const query = this.#ownedFilter(appId);
    for (const kind of ["secrets", "configs"] as const) {
      const found = await this.#ask<EngineFile[]>(`list ${kind}`, { path: `/${kind}?`, query });
      for (const { ID: id, Spec: spec } of found) {
        if (!this.#ownership.isOwn("file", appId, { labels: spec?.Labels })) continue;
        // The engine rejects removing one that is in use.
        await unlessGone(this.#remove(`remove one of the ${kind}`, `/${kind}/${id}`), [
          "not_found",
          "invalid_argument",
          "failed_precondition",
        ]);
      }
    }
  }

  /** @param appId limits the filter to one app */
  #ownedFilter(appId?: string): { filters: string } {
    return { filters: JSON.stringify(this.#ownership.filter(appId)) };
  }

  #serviceOf(service: EngineService): SwarmService {
    const { ID, Version, Spec, UpdateStatus: update } = service;
    return {
      id: ID,
      appId: this.#ownership.ownerOf("service", { labels: Spec.Labels }) ?? "",
      part: Spec.Labels[composeServiceLabel] ?? "",
      labels: Spec.Labels,
      version: Version.Index,
      replicas: Spec.Mode.Replicated.Replicas,
      spec: Spec,
      update: update && { state: update.State ?? "", message: update.Message ?? "" },
    };
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

interface Labelled {
  readonly Labels?: Labels | null;
}

interface EngineFile {
  readonly ID: string;
  readonly Spec?: Labelled;
}

interface EngineNode {
  readonly ID: string;
  readonly Description?: { readonly Hostname?: string };
  readonly Spec?: { readonly Availability?: string };
  readonly Status?: { readonly State?: string; readonly Addr?: string };
}

function taskOf(task: EngineTask, node: SwarmNode | undefined, ownership: EngineOwnership): SwarmTask {
  const {
    State: state = "new",
    Err: error = "",
    Timestamp: since,
    ContainerStatus: container,
  } = task.Status ?? {};
  const createdAtMs = Date.parse(task.CreatedAt);
  const labels = task.Spec?.ContainerSpec?.Labels ?? {};
  // A task has the labels of its service's specification, without those of the image.
  const names = ["svc-"];
  return {
    id: task.ID,
    serviceId: task.ServiceID,
    appId: ownership.ownerOf("container", { labels, names }) ?? "",
    slot: task.Slot ?? 0,
    nodeId: task.NodeID ?? "",
    node: node?.name ?? "",
    nodeAddress: node?.address ?? "",
    nodeState: node?.state ?? "",
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
