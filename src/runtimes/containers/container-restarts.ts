/**
 * Restarts containers that exited by themselves, by the app's restart policy. The engine never does: no container
 * starts without svc's check.
 */
import type { ContainerRecord } from "../../engine/container-record.ts";
import { SvcError } from "../../errors.ts";
import type { RestartPolicy as ManifestPolicy } from "../../packages/manifest/manifest.ts";
import { restartSpec } from "../process/process-spec.ts";
import { RestartPolicy } from "../process/restart-policy.mjs";
import type { RestartSpec } from "../process/supervisor-types.ts";

/** Label of a container with its own restart policy, such as `on-failure:3`. */
export const restartLabel = "svc.restart";

/** The decision for a container that has ended. */
export interface ContainerEnd {
  /** Time of the restart, unix milliseconds; absent without one. */
  readonly restartAtMs?: number;
  /** Why it is not restarted, without a full stop; empty without a reason. */
  readonly why: string;
}

export interface ContainerRestartsOptions {
  /** Restarts a container. */
  restart: (container: ContainerRecord) => Promise<void>;
  /** Called when a decision changes. */
  onChange: () => void;
}

interface Restarts {
  readonly policy: RestartPolicy;
  count: number;
  /** End time that the decision belongs to. */
  endedAtMs?: number | undefined;
  end?: ContainerEnd | undefined;
  timer?: NodeJS.Timeout | undefined;
}

/** The restarts of one app's containers since its start. */
export class ContainerRestarts {
  readonly #options: ContainerRestartsOptions;
  readonly #all = new Map<string, Restarts>();
  readonly #transition = new Set<Promise<void>>();

  constructor(options: ContainerRestartsOptions) {
    this.#options = options;
  }

  /** Number of restarts of the app's containers. */
  get count(): number {
    return [...this.#all.values()].reduce((sum, { count }) => sum + count, 0);
  }

  /** The decision for a container that has ended; `undefined` before it is made. */
  endOf({ id, finishedAtMs }: Pick<ContainerRecord, "id" | "finishedAtMs">): ContainerEnd | undefined {
    const restarts = this.#all.get(id);
    return restarts?.endedAtMs === finishedAtMs ? restarts?.end : undefined;
  }

  /**
   * Decides whether to restart a container that has ended, once per exit.
   * @param spec the app's policy
   * @param wasKilled ended by neither svc nor the container itself: it restarts whatever its policy
   */
  judge(container: ContainerRecord, spec: ManifestPolicy, wasKilled: boolean): void {
    const { id, startedAtMs = 0, finishedAtMs = 0, exitCode } = container;
    const written = ownSpec(container, spec);
    const restarts = this.#all.get(id) ?? { policy: new RestartPolicy(written), count: 0 };
    this.#all.set(id, restarts);
    if (restarts.endedAtMs === container.finishedAtMs) return;
    restarts.endedAtMs = container.finishedAtMs;
    restarts.policy.update(wasKilled ? { ...written, policy: "always", maxRestarts: 0 } : written);
    this.#next(container, restarts, { code: exitCode, ranMs: finishedAtMs - startedAtMs });
  }

  #next(container: ContainerRecord, restarts: Restarts, exit: { code: number; ranMs: number }): void {
    const next = restarts.policy.next(exit);
    if ("giveUp" in next) {
      restarts.end = { why: next.giveUp };
      return;
    }
    restarts.end = { why: "", restartAtMs: Date.now() + next.delayMs };
    restarts.timer = setTimeout(() => {
      const work = this.#restart(container, restarts).finally(() => this.#transition.delete(work));
      this.#transition.add(work);
    }, next.delayMs).unref();
  }

  async #restart(container: ContainerRecord, restarts: Restarts): Promise<void> {
    try {
      await this.#options.restart(container);
      restarts.count++;
    } catch (error) {
      // The decision to restart was revoked during the attempt.
      if (restarts.end === undefined) return;
      const isDenied = error instanceof SvcError && error.reason === "denied";
      if (isDenied) restarts.end = { why: (error as SvcError).message };
      else this.#next(container, restarts, { code: 1, ranMs: 0 });
    }
    this.#options.onChange();
  }

  /** The container runs: another client started it. */
  runs({ id }: Pick<ContainerRecord, "id">): void {
    const restarts = this.#all.get(id);
    if (restarts !== undefined) forgetEnd(restarts);
  }

  /** Cancels pending restarts and waits for running ones. Final decisions stay. */
  async suspend(): Promise<void> {
    for (const restarts of this.#all.values()) {
      if (restarts.end?.restartAtMs !== undefined) forgetEnd(restarts);
    }
    await Promise.allSettled(this.#transition);
  }

  /** Resets the restart counts and earlier exits. */
  async reset(): Promise<void> {
    await this.suspend();
    this.#all.clear();
  }
}

function forgetEnd(restarts: Restarts): void {
  clearTimeout(restarts.timer);
  restarts.end = undefined;
  restarts.endedAtMs = undefined;
}

/** The container's own policy, or the app's, with the app's delays. */
function ownSpec({ labels }: ContainerRecord, spec: ManifestPolicy): RestartSpec {
  const apps = restartSpec(spec);
  const [word, attempts = 0] = labels[restartLabel]?.split(":") ?? [];
  if (word === undefined) return apps;
  const policy = word === "no" || word === "never" ? "never" : word === "on-failure" ? word : "always";
  return { ...apps, policy, maxRestarts: Number(attempts) };
}
