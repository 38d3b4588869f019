/** What an app is to be on a swarm, whatever kind of package it is. */
import { createHash } from "node:crypto";
import type { UpgradePolicy } from "../../packages/manifest.ts";
import { SvcError } from "../../errors.ts";
import type { JsonValue } from "../../lib/json.ts";
import { usersContainers } from "../container-policy.ts";
import type { ImageRuntime, Placement, RunnableApp, RuntimeWork } from "../runtime.ts";
import { settingsDigest, settingsLabel } from "../settings-digest.ts";
import { releaseLabel } from "../stuck-containers.ts";
import type { HandedFile } from "./handed-files.ts";
import type { ServiceSpec } from "./swarm-api.ts";

/** On services: how many tasks they have is the app's placement to say. */
export const scaledLabel = "svc.scaled";

export interface NetworkPlan {
  readonly name: string;
  /** Leads nowhere else. */
  readonly isInternal: boolean;
}

export interface ServicePlan {
  /** Of a compose project; empty for the only one of an app. */
  readonly part: string;
  readonly spec: ServiceSpec;
  /** What its tasks are handed. */
  readonly files: readonly HandedFile[];
  /** Whose registry is told who asks. */
  readonly image: string;
}

export interface StackPlan {
  readonly networks: readonly NetworkPlan[];
  /** One after the other: those that others depend on first. */
  readonly steps: readonly (readonly ServicePlan[])[];
}

/** A kind of packages that run on a swarm. */
export interface Stacks {
  readonly images: ImageRuntime;
  /** As {@link AppRuntime.prepare}. */
  prepare(app: RunnableApp, work: RuntimeWork): Promise<void>;
  /** As {@link AppRuntime.settle}. */
  settle(app: RunnableApp): Promise<void>;
  /** As {@link AppRuntime.check}. */
  check(app: RunnableApp): Promise<void>;
  /**
   * For a start: what is to be mounted is there, and is held.
   * @param nodeId of this machine
   */
  plan(app: RunnableApp, nodeId: string): Promise<StackPlan>;
  /** Its parts, which may run beside those of another version; undefined where it keeps anything that these could spoil. */
  partsWithoutData(app: RunnableApp): Promise<readonly string[] | undefined>;
  /** What of it is on this machine's engine goes; resolves with the bytes. Nothing of it runs. */
  remove(app: RunnableApp, keep?: "volumes"): Promise<number>;
}

const nanosecondsPerMs = 1_000_000;
const maxNameLength = 63;
const digestLength = 16;
const defaults: UpgradePolicy = { parallel: 1, watchMs: 5_000 };

/** A name that the swarm takes. @param base of the app @param part of it; empty for the app itself */
export function swarmName(base: string, part = ""): string {
  const whole = part === "" ? base : `${base}_${part}`;
  const name = whole.replaceAll(/[^A-Za-z0-9_-]/g, "-");
  if (name.length <= maxNameLength && /[A-Za-z0-9]$/.test(name)) return name;
  const digest = createHash("sha256").update(whole).digest("hex").slice(0, digestLength);
  return `${name.slice(0, maxNameLength - digestLength - 1).replace(/[_-]+$/, "")}-${digest}`;
}

/** @throws Error for an app that is not on a swarm */
export function placementOf({ id, placement }: Pick<RunnableApp, "id" | "placement">): Placement {
  if (placement === undefined) throw new Error(`app ${id} runs on this machine`);
  return placement;
}

/** @throws SvcError `denied` for more tasks than a regular user's app may have */
export function requireFewTasks({ id, ownerUid }: Pick<RunnableApp, "id" | "ownerUid">, tasks: number): void {
  if (ownerUid === 0 || tasks <= usersContainers) return;
  const message = `app "${id}" would run in ${tasks} tasks, more than ${usersContainers}: only root's apps may`;
  throw new SvcError("denied", message);
}

/** @throws SvcError `denied` for what only root's apps may have there */
export function requireNoData(
  { id, ownerUid }: Pick<RunnableApp, "id" | "ownerUid">,
  hasMounts: boolean,
): void {
  if (ownerUid === 0 || !hasMounts) return;
  // Whoever owns the directory could lead the mount elsewhere between two starts, and the swarm starts without asking svc.
  const message = `app "${id}" keeps data in its directory, and a swarm starts its containers without svc's check: on a swarm only root's apps may`;
  throw new SvcError("denied", message);
}

/** @throws SvcError `denied` for a port that a swarm would open further */
export function requireOpen(
  { id }: Pick<RunnableApp, "id">,
  ports: readonly { readonly name: string; readonly address: string }[],
): void {
  const closed = ports.find(({ address }) => !["", "0.0.0.0", "::"].includes(address));
  if (closed === undefined) return;
  const message = `port ${closed.name} of app "${id}" is published at ${closed.address} only, and a swarm publishes at all addresses of its nodes: have it published at 0.0.0.0`;
  throw new SvcError("denied", message);
}

export interface UpdateFacts {
  readonly ports: Placement["ports"];
  readonly hasPorts: boolean;
  readonly hasMounts: boolean;
}

/** How the engine replaces tasks; what it cannot bring up it takes back. */
export function updateConfigs(
  { manifest: { upgrade } }: Pick<RunnableApp, "manifest">,
  { ports, hasPorts, hasMounts }: UpdateFacts,
): { UpdateConfig: object; RollbackConfig: object } {
  const { order, parallel, watchMs } = upgrade ?? defaults;
  // Two tasks cannot have the same port of a node, nor the same data.
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

/** The same, replaced although so many tasks more than it says are waited for meanwhile. */
export function besides(plan: ServicePlan, tasks: number): ServicePlan {
  const { UpdateConfig: update } = plan.spec as { UpdateConfig?: { Parallelism: number } };
  if (update === undefined || update.Parallelism === 0 || tasks === 0) return plan;
  const UpdateConfig = { ...update, Parallelism: update.Parallelism + tasks };
  return { ...plan, spec: { ...plan.spec, UpdateConfig } };
}

/** With labels that tell it from what another version, or other settings, would make, and from one that is handed other files. */
export function withRelease(
  app: Pick<RunnableApp, "version" | "manifest" | "settings">,
  spec: ServiceSpec,
  files: readonly HandedFile[],
): ServiceSpec {
  const settings = settingsDigest(app);
  const { TaskTemplate: template, ...rest } = spec;
  const counted = { ...rest, Mode: null, TaskTemplate: template };
  const release = createHash("sha256")
    .update(JSON.stringify([settings, counted, files.map(digestOf)]))
    .digest("hex")
    .slice(0, digestLength);
  const container = template["ContainerSpec"] as { Labels?: Record<string, string> };
  return {
    ...spec,
    Labels: { ...spec.Labels, [settingsLabel]: settings, [releaseLabel]: release },
    // The swarm replaces tasks whose own description is another one.
    TaskTemplate: {
      ...template,
      ContainerSpec: { ...container, Labels: { ...container.Labels, [releaseLabel]: release } },
    },
  };
}

function digestOf({ kind, path, content }: HandedFile): string[] {
  return [kind, path, createHash("sha256").update(content).digest("hex")];
}

/** As JSON has it: what is not there is left out. */
export function plain(value: object): JsonValue {
  return JSON.parse(JSON.stringify(value)) as JsonValue;
}
