/** Carries out a prune plan item by item; a dry run stops after the plan. */
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import { SvcError } from "../errors.ts";
import { Limiter } from "../lib/limiter.ts";
import { shareOwner } from "../lib/share-owner.ts";
import type { OnProgress } from "../work/progress.ts";
import type { PruneDockerRequestTarget } from "../../gen/svc/v1/values.ts";
import type { DiskMeter, DiskUsage } from "./disk-usage.ts";
import type { Protection } from "./protection.ts";
import { planPrune, type PruneItem, type PrunePlan, type SkippedItem } from "./prune-plan.ts";
import type { EngineOperations } from "./watched-engine.ts";

export interface PruneRequest {
  readonly target: PruneDockerRequestTarget;
  readonly danglingOnly: boolean;
  readonly dryRun: boolean;
  /** Only these; absent or empty: everything in the plan. */
  readonly ids?: readonly string[];
}

export interface PruneResult {
  readonly removed: readonly PruneItem[];
  readonly skipped: readonly SkippedItem[];
}

export interface PrunerOptions {
  engine: EngineOperations;
  disk: DiskMeter;
  /** Objects that the installed apps need. */
  protect: (disk: DiskUsage) => Promise<Protection>;
  /** Changes whenever `protect` may return something else for the same disk usage. */
  appsRevision: () => number;
}

/** Per item: removing many gigabytes of layers takes time. */
const itemTimeoutMs = 300_000;
const listTimeoutMs = 60_000;

export class Pruner {
  readonly #options: PrunerOptions;
  /** By the share of the caller. Concurrent prunes would fail on each other's items. */
  readonly #slots = new Limiter<number>({ total: 1, perKey: 1 });

  constructor(options: PrunerOptions) {
    this.#options = options;
  }

  /**
   * Removes unused objects, never by force: an object that has come into use is skipped with the engine's
   * message.
   * @throws SvcError `unavailable`; the signal's reason while it waits and between two items
   */
  async prune(
    request: PruneRequest,
    signal: AbortSignal,
    onProgress: OnProgress = () => undefined,
  ): Promise<PruneResult> {
    using _slot = await this.#slots.acquire(shareOwner(), signal);
    const { target, dryRun, ids = [] } = request;
    const currentPlan = this.#planner(request, await this.#options.disk.measure(signal));
    const plan = await currentPlan();
    const requestedIds = new Set(ids);
    const chosen = plan.remove.filter(({ id }) => requestedIds.size === 0 || requestedIds.has(id));
    if (dryRun) return { removed: chosen, skipped: plan.skip };
    const removed: PruneItem[] = [];
    const skipped = [...plan.skip];
    for (const item of chosen) {
      signal.throwIfAborted();
      // An app may have been installed since the plan was made.
      const { skip } = await currentPlan();
      onProgress({ step: "remove", message: `Removing ${item.name || item.id}` });
      const refusal = skip.find(({ id }) => id === item.id)?.reason ?? (await this.#remove(target, item));
      if (refusal === undefined) removed.push(item);
      else skipped.push({ id: item.id, name: item.name, reason: refusal });
    }
    return { removed, skipped };
  }

  /**
   * Returns a function that plans for the measured usage, and plans again only when an app was installed, changed or
   * removed.
   */
  #planner({ target, danglingOnly }: PruneRequest, disk: DiskUsage): () => Promise<PrunePlan> {
    const { protect, appsRevision } = this.#options;
    let known: { revision: number; plan: PrunePlan } | undefined;
    return async () => {
      const revision = appsRevision();
      if (known?.revision === revision) return known.plan;
      const plan = planPrune(target, danglingOnly, disk, await protect(disk));
      known = { revision, plan };
      return plan;
    };
  }

  /** @returns why the item stays; undefined when it is gone. Once started, the removal is not canceled. */
  async #remove(target: PruneDockerRequestTarget, item: PruneItem): Promise<string | undefined> {
    try {
      // The engine checks for containers only when the last name of an image is removed; the other names would be
      // lost by then.
      if (target === "images" && (await this.#isRun(item.id)))
        return "a container was created from it meanwhile";
      for (const handle of item.handles) {
        const isThere = await this.#removeHandle(target, handle);
        if (!isThere) return "the build cache still needs it";
      }
      return undefined;
    } catch (error) {
      if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
      // Somebody else removed it.
      return error.code === "not_found" ? "already removed" : error.message;
    }
  }

  /** Whether a container of the image exists, running or not. */
  async #isRun(imageId: string): Promise<boolean> {
    const containers = await this.#options.engine.operate(
      "list the containers of an image",
      (docker) => docker.listContainers({ all: true, filters: { ancestor: [imageId] } }),
      { timeoutMs: listTimeoutMs },
    );
    // The engine's result includes containers of images built on this one.
    return containers.some(({ ImageID }) => ImageID === imageId);
  }

  async #removeHandle(target: PruneDockerRequestTarget, handle: string): Promise<boolean> {
    const { engine } = this.#options;
    return engine.operate(
      `remove ${handle}`,
      async (docker) => {
        if (target === "images") await docker.getImage(handle).remove();
        else if (target === "volumes") await docker.getVolume(handle).remove();
        else return pruneCacheRecord(docker, handle);
        return true;
      },
      { timeoutMs: itemTimeoutMs },
    );
  }
}

/**
 * dockerode's own method passes no filter on, and would remove the whole cache. @returns whether the record is gone
 */
async function pruneCacheRecord(docker: Dockerode, id: string): Promise<boolean> {
  const options = { all: true, filters: JSON.stringify({ id: [id] }) };
  const request = { path: "/build/prune?", method: "POST", statusCodes: { 200: true }, options };
  const { CachesDeleted } = (await promisify(docker.modem.dial.bind(docker.modem))(request)) as {
    CachesDeleted?: string[] | null;
  };
  return CachesDeleted?.includes(id) ?? false;
}
