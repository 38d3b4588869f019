/** Carries a prune plan out, one item at a time; a dry run stops after the plan. */
import { promisify } from "node:util";
import type Dockerode from "dockerode";
import { SvcError } from "../errors.ts";
import type { PruneDockerRequestTarget } from "../../gen/svc/v1/words.ts";
import type { DiskMeter, DiskUsage } from "./disk-usage.ts";
import type { Protection } from "./protection.ts";
import { planPrune, type PruneItem, type PrunePlan, type SkippedItem } from "./prune-plan.ts";
import type { EngineOperations } from "./watched-engine.ts";

export interface PruneRequest {
  readonly target: PruneDockerRequestTarget;
  readonly danglingOnly: boolean;
  readonly dryRun: boolean;
  /** Nothing but these; absent or empty: all of the plan. */
  readonly ids?: readonly string[];
}

export interface PruneResult {
  readonly removed: readonly PruneItem[];
  readonly skipped: readonly SkippedItem[];
}

export interface PrunerOptions {
  engine: EngineOperations;
  disk: DiskMeter;
  /** What installed apps need of what is there. */
  protect: (disk: DiskUsage) => Promise<Protection>;
  /** Another number whenever `protect` may answer something else for the same disk. */
  appsRevision: () => number;
}

/** For one item: layers of many gigabytes take their time. */
const itemTimeoutMs = 300_000;
const listTimeoutMs = 60_000;

export class Pruner {
  readonly #options: PrunerOptions;
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: PrunerOptions) {
    this.#options = options;
  }

  /**
   * Removes what nobody uses, never by force: what the engine refuses to give up, as somebody took it meanwhile, is passed
   * over with the engine's words.
   * @throws SvcError `unavailable`; the signal's reason between two items
   */
  async prune(request: PruneRequest, signal: AbortSignal): Promise<PruneResult> {
    // One after another: two would trip over each other's items.
    const turn = this.#last.catch(() => undefined).then(() => this.#prune(request, signal));
    this.#last = turn;
    return turn;
  }

  async #prune(request: PruneRequest, signal: AbortSignal): Promise<PruneResult> {
    const { target, dryRun, ids = [] } = request;
    const currentPlan = this.#planner(request, await this.#options.disk.measure(signal));
    const plan = await currentPlan();
    const wanted = new Set(ids);
    const chosen = plan.remove.filter(({ id }) => wanted.size === 0 || wanted.has(id));
    if (dryRun) return { removed: chosen, skipped: plan.skip };
    const removed: PruneItem[] = [];
    const skipped = [...plan.skip];
    for (const item of chosen) {
      signal.throwIfAborted();
      // A plan takes its time: an app that was installed meanwhile needs what it needs.
      const { skip } = await currentPlan();
      const refusal = skip.find(({ id }) => id === item.id)?.reason ?? (await this.#remove(target, item));
      if (refusal === undefined) removed.push(item);
      else skipped.push({ id: item.id, name: item.name, reason: refusal });
    }
    return { removed, skipped };
  }

  /** Plans for what was measured, by the apps that are installed at each call: anew only when one came, changed or went. */
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

  /** Why it stays; undefined when it is gone. An item is begun and ended, whoever goes away meanwhile. */
  async #remove(target: PruneDockerRequestTarget, item: PruneItem): Promise<string | undefined> {
    try {
      // The engine looks at containers only when the last name of an image goes; the others would be lost by then.
      if (target === "images" && (await this.#isRun(item.id)))
        return "a container was made from it meanwhile";
      for (const handle of item.handles) {
        const isThere = await this.#removeHandle(target, handle);
        if (!isThere) return "the build cache still needs it";
      }
      return undefined;
    } catch (error) {
      if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
      // Somebody else removed it: it is gone, but not by us.
      return error.code === "not_found" ? "it is gone already" : error.message;
    }
  }

  /** Whether a container is made from the image, running or not. */
  async #isRun(imageId: string): Promise<boolean> {
    const containers = await this.#options.engine.operate(
      "list the containers of an image",
      (docker) => docker.listContainers({ all: true, filters: { ancestor: [imageId] } }),
      { timeoutMs: listTimeoutMs },
    );
    // The engine counts those of images that are built upon it, too.
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

/** dockerode's own method would pass no filter on, and so remove the whole cache. @returns whether it is gone */
async function pruneCacheRecord(docker: Dockerode, id: string): Promise<boolean> {
  const options = { all: true, filters: JSON.stringify({ id: [id] }) };
  const request = { path: "/build/prune?", method: "POST", statusCodes: { 200: true }, options };
  const { CachesDeleted } = (await promisify(docker.modem.dial.bind(docker.modem))(request)) as {
    CachesDeleted?: string[] | null;
  };
  return CachesDeleted?.includes(id) ?? false;
}
