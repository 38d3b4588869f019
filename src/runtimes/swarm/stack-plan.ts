/** The plan of an app on a swarm, for both kinds of packages. */
import { createHash } from "node:crypto";
import type { UpgradePolicy } from "../../packages/manifest/manifest.ts";
import { SvcError } from "../../errors.ts";
import { mapTexts } from "../compose/compose-values.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { usersContainers } from "../containers/container-policy.ts";
import type { ImageRuntime, RuntimeWork } from "../capabilities.ts";
import type { Placement, RunnableApp } from "../runnable-app.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";
import { releaseLabel } from "../containers/blocked-containers.ts";
import { leastDelayMs } from "../process/restart-policy.mjs";
import type { TaskFile } from "./task-files.ts";
import type { ServiceSpec } from "./swarm-api.ts";

/** Label of services whose number of tasks the app's placement sets. */
export const scaledLabel = "svc.scaled";

/** Label with the size of all files of a service's tasks, in bytes: the engine's list of services does not have it. */
export const fileBytesLabel = "svc.file-bytes";

export interface NetworkPlan {
  readonly name: string;
  /** Without access to other networks. */
  readonly isInternal: boolean;
}

export interface ServicePlan {
  /** Service of a compose project; empty for a single-service app. */
  readonly part: string;
  readonly spec: ServiceSpec;
  /** Files for its tasks. */
  readonly files: readonly TaskFile[];
  /** Image name, for the credentials of its registry. */
  readonly image: string;
}

export interface StackPlan {
  readonly networks: readonly NetworkPlan[];
  /** In start order: services come after those that they depend on. */
  readonly steps: readonly (readonly ServicePlan[])[];
}

/** A kind of package on a swarm. */
export interface Stacks {
  readonly images: ImageRuntime;
  /** Like {@link AppRuntime.prepare}. */
  prepare(app: RunnableApp, work: RuntimeWork): Promise<void>;
  /** Like {@link AppRuntime.settle}. */
  settle(app: RunnableApp): Promise<void>;
  /** Like {@link AppRuntime.check}. */
  check(app: RunnableApp): Promise<void>;
  /**
   * Plans a start: mounts exist, and are verified.
   * @param nodeId ID of this host's node
   */
  plan(app: RunnableApp, nodeId: string): Promise<StackPlan>;
  /** The app's services, if they may run beside those of another version; undefined if that could corrupt data. */
  partsWithoutData(app: RunnableApp): Promise<readonly string[] | undefined>;
  /**
   * Removes the app's objects from this host's engine; resolves to the number of freed bytes. The app must not run.
   */
  remove(app: RunnableApp, keep?: "volumes"): Promise<number>;
}

const nanosecondsPerMs = 1_000_000;
const maxNameLength = 63;
const digestLength = 16;
const defaults: UpgradePolicy = { parallel: 1, watchMs: 5_000 };
/** Minimum delay before a swarm restarts a task of a regular user: it never backs off, and creates a container each time. */
const leastUserDelayMs = 10_000;

/** A valid name on a swarm. @param base of the app @param part service of the app; empty for the app itself */
export function swarmName(base: string, part = ""): string {
  const whole = part === "" ? base : `${base}_${part}`;
  const name = whole.replaceAll(/[^A-Za-z0-9_-]/g, "-");
  if (name.length <= maxNameLength && /[A-Za-z0-9]$/.test(name)) return name;
  const digest = createHash("sha256").update(whole).digest("hex").slice(0, digestLength);
  return `${name.slice(0, maxNameLength - digestLength - 1).replace(/[_-]+$/, "")}-${digest}`;
}

/** @throws Error for an app that is not on a swarm */
export function placementOf({ id, placement }: Pick<RunnableApp, "id" | "placement">): Placement {
  if (placement === undefined) throw new Error(`app ${id} runs on this host`);
  return placement;
}

/** @throws SvcError `denied` for more tasks than a regular user's app may have */
export function requireFewTasks({ id, ownerUid }: Pick<RunnableApp, "id" | "ownerUid">, tasks: number): void {
  if (ownerUid === 0 || tasks <= usersContainers) return;
  const message = `app "${id}" would run in ${tasks} tasks, more than ${usersContainers}, which only root's apps may have`;
  throw new SvcError("denied", message);
}

/** @throws SvcError `denied` for data in the directory of an app that is not root's */
export function requireNoData(
  { id, ownerUid }: Pick<RunnableApp, "id" | "ownerUid">,
  hasMounts: boolean,
): void {
  if (ownerUid === 0 || !hasMounts) return;
  // The directory's owner could redirect the mount between two starts, and the swarm starts tasks without svc's
  // check.
  const message = `app "${id}" keeps data in its directory, and a swarm starts its containers without svc's check; on a swarm only root's apps may keep data`;
  throw new SvcError("denied", message);
}

/** @throws SvcError `denied` for a port with an address: a swarm publishes at all addresses of its nodes */
export function requireOpen(
  { id }: Pick<RunnableApp, "id">,
  ports: readonly { readonly name: string; readonly address: string }[],
): void {
  const closed = ports.find(({ address }) => !["", "0.0.0.0", "::"].includes(address));
  if (closed === undefined) return;
  const message = `app "${id}" publishes port ${closed.name} only at ${closed.address}, but a swarm publishes at all addresses of its nodes; set address: 0.0.0.0 for this port in the package, or [docker] publish_address = "0.0.0.0"`;
  throw new SvcError("denied", message);
}

/** The delay before a swarm restarts a task, in nanoseconds. */
export function restartDelay({ ownerUid, manifest }: Pick<RunnableApp, "ownerUid" | "manifest">): number {
  const leastMs = ownerUid === 0 ? leastDelayMs : leastUserDelayMs;
  return Math.max(leastMs, manifest.restart.delayMs) * nanosecondsPerMs;
}

export interface UpdateFacts {
  readonly ports: Placement["ports"];
  readonly hasPorts: boolean;
  readonly hasMounts: boolean;
}

/** How the engine replaces tasks; it rolls back an update that fails. */
export function updateConfigs(
  { manifest: { upgrade } }: Pick<RunnableApp, "manifest">,
  { ports, hasPorts, hasMounts }: UpdateFacts,
): { UpdateConfig: object; RollbackConfig: object } {
  const { order, parallel, watchMs } = upgrade ?? defaults;
  // Two tasks can share neither a node's port nor data.
  const isAlone = hasMounts || (ports === "host" && hasPorts);
  const Order = order ?? (isAlone ? "stop-first" : "start-first");
  return {
    UpdateConfig: {
      ...{ Parallelism: parallel, FailureAction: "rollback", Order },
      Monitor: watchMs * nanosecondsPerMs,
    },
    RollbackConfig: { Parallelism: 0, FailureAction: "pause", Order: "stop-first" },
  };
}

/** The same plan with more parallel updates, so that this many waiting tasks do not block it. */
export function withExtraParallelism(plan: ServicePlan, tasks: number): ServicePlan {
  const { UpdateConfig: update } = plan.spec as { UpdateConfig?: { Parallelism: number } };
  if (update === undefined || update.Parallelism === 0 || tasks === 0) return plan;
  const UpdateConfig = { ...update, Parallelism: update.Parallelism + tasks };
  return { ...plan, spec: { ...plan.spec, UpdateConfig } };
}

/** Adds labels that identify version, settings and files. */
export function withRelease(
  app: Pick<RunnableApp, "version" | "manifest" | "settings" | "ownerUid">,
  planned: ServiceSpec,
  files: readonly TaskFile[],
): ServiceSpec {
  const spec = app.ownerUid === 0 ? planned : withoutTemplates(planned);
  const settings = settingsDigest(app);
  const { TaskTemplate: template, ...rest } = spec;
  const counted = { ...rest, Mode: null, TaskTemplate: template };
  const release = createHash("sha256")
    .update(JSON.stringify([settings, counted, files.map(digestOf)]))
    .digest("hex")
    .slice(0, digestLength);
  const container = template["ContainerSpec"] as { Labels?: Record<string, string> };
  const fileBytes = files.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
  return {
    ...spec,
    Labels: {
      ...spec.Labels,
      [settingsLabel]: settings,
      [releaseLabel]: release,
      ...(fileBytes > 0 && { [fileBytesLabel]: String(fileBytes) }),
    },
    // The swarm replaces tasks whose specification changed.
    TaskTemplate: {
      ...template,
      ContainerSpec: { ...container, Labels: { ...container.Labels, [releaseLabel]: release } },
    },
  };
}

/**
 * Escapes a user's text in fields that a swarm expands as Go templates (swarmkit, template/expand.go): templates
 * could read the service's labels, which prove ownership to svc.
 */
function withoutTemplates(spec: ServiceSpec): ServiceSpec {
  const container = spec.TaskTemplate["ContainerSpec"] as JsonObject;
  const expanded: JsonObject = {};
  for (const key of ["Env", "Hostname", "Mounts"]) {
    const value = container[key];
    if (value !== undefined) expanded[key] = mapTexts(value, (text) => text.replaceAll("{{", '{{"{{"}}'));
  }
  const ContainerSpec = { ...container, ...expanded };
  return { ...spec, TaskTemplate: { ...spec.TaskTemplate, ContainerSpec } };
}

function digestOf({ kind, path, content }: TaskFile): string[] {
  return [kind, path, createHash("sha256").update(content).digest("hex")];
}

/** As JSON: undefined values are omitted. */
export function plain(value: object): JsonValue {
  return JSON.parse(JSON.stringify(value)) as JsonValue;
}

/** @param compose the images of compose projects */
export function imagesOfKinds(of: (app: RunnableApp) => ImageRuntime, compose: ImageRuntime): ImageRuntime {
  return {
    needs: (app) => of(app).needs(app),
    image: (app, options) => of(app).image(app, options),
    pull: (app, work) => of(app).pull(app, work),
    // Image names belong to the engine, whatever the kind of package.
    restoreNames: (replaced) => compose.restoreNames(replaced),
    disk: (app, signal) => of(app).disk(app, signal),
    stacks: (apps) => compose.stacks(apps.filter(({ manifest }) => manifest.runtime.kind === "compose")),
  };
}
