/** Polls the swarm, and applies its state to the apps. */
import { Ticker } from "../../lib/clock.ts";
import { CoalescedRequests } from "../../lib/coalesced-requests.ts";
import type { Log } from "../../lib/log.ts";
import type { SwarmApi } from "./swarm-api.ts";
import type { SwarmApp } from "./swarm-app.ts";

export interface SwarmPollsOptions {
  readonly api: SwarmApi;
  /** Followed apps by ID. */
  readonly apps: ReadonlyMap<string, SwarmApp>;
  readonly log: Pick<Log, "warn">;
}

const pollMs = 2_000;

export class SwarmPolls implements AsyncDisposable {
  readonly #options: SwarmPollsOptions;
  readonly #ticker: Ticker;
  /** Concurrent callers share a poll. */
  readonly #polls = new CoalescedRequests<undefined, undefined>(() => this.#load());
  /** Apps with a service at the last poll; undefined while the swarm is unreachable. */
  #inService: ReadonlySet<string> | undefined;
  /** Whether to poll for apps that run although they should not. */
  #followsExternal = false;
  #isUnreachable = false;

  constructor(options: SwarmPollsOptions) {
    this.#options = options;
    this.#ticker = new Ticker(pollMs, () => this.#poll());
  }

  /** Apps with a service at the last poll. From now on, also polls for apps that run although they should not. */
  followExternal(): ReadonlySet<string> {
    this.#followsExternal = true;
    return this.#inService ?? new Set();
  }

  /** Applies the swarm's state after this call to all apps. @throws SvcError `unavailable` */
  async refresh(): Promise<void> {
    await this.#polls.request(undefined);
  }

  async #poll(): Promise<void> {
    const apps = [...this.#options.apps.values()];
    const shouldAnyRun = apps.some(({ shouldRun }) => shouldRun);
    if (!shouldAnyRun && !this.#mayRunUndesired() && !apps.some((app) => app.isPartlyUnknown)) return;
    try {
      await this.refresh();
    } catch {
      // Each app's status shows the error. An engine outside a swarm runs no services.
      const isMember = shouldAnyRun || (await this.#options.api.isMember().catch(() => true));
      if (!isMember) this.#inService = new Set();
    }
  }

  /** Whether an app may run although it should not, because a stop failed or no poll has succeeded yet. */
  #mayRunUndesired(): boolean {
    if (!this.#followsExternal) return false;
    const { apps } = this.#options;
    return (
      this.#inService === undefined || [...this.#inService].some((id) => apps.get(id)?.shouldRun !== true)
    );
  }

  async #load(): Promise<undefined> {
    const { api, apps, log } = this.#options;
    try {
      const [services, tasks] = await Promise.all([api.services(), api.tasks()]);
      const servicesOf = Map.groupBy(services, ({ appId }) => appId);
      const tasksOf = Map.groupBy(tasks, ({ appId }) => appId);
      this.#inService = new Set(servicesOf.keys());
      this.#isUnreachable = false;
      for (const [id, app] of apps) app.take(servicesOf.get(id) ?? [], tasksOf.get(id) ?? []);
    } catch (error) {
      this.#inService = undefined;
      // Log only the first failure; each app's status shows the error.
      if (!this.#isUnreachable) log.warn({ err: error }, "the swarm is unreachable");
      this.#isUnreachable = true;
      const { message } = error as Error;
      for (const app of apps.values()) app.lost(message);
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#ticker[Symbol.asyncDispose]();
  }
}
