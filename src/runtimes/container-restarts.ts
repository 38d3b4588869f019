/**
 * Starting containers again that ended by themselves, as the restart policy of their app says. The engine never does it:
 * no container starts without svc's check (decisions 39).
 */
import type { ContainerRecord } from "../docker/container-record.ts";
import { SvcError } from "../errors.ts";
import type { RestartPolicy as ManifestPolicy } from "../packages/manifest.ts";
import { restartSpec } from "./process/process-spec.ts";
import { RestartPolicy } from "./process/restart-policy.mjs";
import type { RestartSpec } from "./process/supervisor-types.ts";

/** The label of a container that has a policy of its own, such as `on-failure:3`. */
export const restartLabel = "svc.restart";

/** What becomes of a container that has ended. */
export interface ContainerEnd {
  /** When it starts again, unix milliseconds; absent: it does not. */
  readonly restartAtMs?: number;
  /** Why it does not start again, without a full stop; empty where there is nothing to say. */
  readonly why: string;
}

export interface ContainerRestartsOptions {
  /** Starts it again. */
  restart: (container: ContainerRecord) => Promise<void>;
  /** Called when something else becomes of a container. */
  onChange: () => void;
}

interface Restarts {
  readonly policy: RestartPolicy;
  count: number;
  /** Of the end that was judged last. */
  endedAtMs?: number | undefined;
  end?: ContainerEnd | undefined;
  timer?: NodeJS.Timeout | undefined;
}

/** Those of one app since its start. */
export class ContainerRestarts {
  readonly #options: ContainerRestartsOptions;
  readonly #all = new Map<string, Restarts>();
  readonly #underway = new Set<Promise<void>>();

  constructor(options: ContainerRestartsOptions) {
    this.#options = options;
  }

  /** How often containers of the app were started again. */
  get count(): number {
    return [...this.#all.values()].reduce((sum, { count }) => sum + count, 0);
  }

  /** What becomes of a container that has ended; `undefined`: that was not judged yet. */
  endOf({ id, finishedAtMs }: Pick<ContainerRecord, "id" | "finishedAtMs">): ContainerEnd | undefined {
    const restarts = this.#all.get(id);
    return restarts?.endedAtMs === finishedAtMs ? restarts?.end : undefined;
  }

  /**
   * Decides what becomes of a container that has ended; once for each end.
   * @param spec of its app
   * @param wasKilled somebody else than svc or the container itself has ended it: it starts again, whatever its policy
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
      const work = this.#restart(container, restarts).finally(() => this.#underway.delete(work));
      this.#underway.add(work);
    }, next.delayMs).unref();
  }

  async #restart(container: ContainerRecord, restarts: Restarts): Promise<void> {
    try {
      await this.#options.restart(container);
      restarts.count++;
    } catch (error) {
      // Its end was forgotten meanwhile: something else has become of it.
      if (restarts.end === undefined) return;
      const isDenied = error instanceof SvcError && error.reason === "denied";
      if (isDenied) restarts.end = { why: (error as SvcError).message };
      else this.#next(container, restarts, { code: 1, ranMs: 0 });
    }
    this.#options.onChange();
  }

  /** It runs: somebody was quicker. */
  runs({ id }: Pick<ContainerRecord, "id">): void {
    const restarts = this.#all.get(id);
    if (restarts !== undefined) forgetEnd(restarts);
  }

  /** Nothing starts again by itself from now on, and nothing that did is on its way any more. What is over stays over. */
  async suspend(): Promise<void> {
    for (const restarts of this.#all.values()) {
      if (restarts.end?.restartAtMs !== undefined) forgetEnd(restarts);
    }
    await Promise.allSettled(this.#underway);
  }

  /** How often, and how it ended before, counts no more. */
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

/** A container's own policy, or that of its app, with the app's times. */
function ownSpec({ labels }: ContainerRecord, spec: ManifestPolicy): RestartSpec {
  const apps = restartSpec(spec);
  const [word, attempts = 0] = labels[restartLabel]?.split(":") ?? [];
  if (word === undefined) return apps;
  const policy = word === "no" || word === "never" ? "never" : word === "on-failure" ? word : "always";
  return { ...apps, policy, maxRestarts: Number(attempts) };
}
