/** One app on a swarm, as it was seen last. */
import type { RunnableApp, RuntimeStatus } from "../runtime.ts";
import { stoppedStatus } from "../container-status.ts";
import { ToldStatus } from "../told-status.ts";
import type { SwarmService, SwarmTask } from "./swarm-api.ts";
import { shownTasks, statusOfTasks } from "./task-status.ts";

export class SwarmApp {
  readonly #told: ToldStatus;
  #app: RunnableApp | undefined;
  #tasks: readonly SwarmTask[] = [];

  /** @param onChange called when its status is another one */
  constructor(id: string, onChange: () => void) {
    this.#told = new ToldStatus(id, onChange);
  }

  get isWanted(): boolean {
    return this.#app !== undefined;
  }

  get status(): RuntimeStatus {
    return this.#told.now;
  }

  /** All that the swarm knows of it, ended ones too. */
  get tasks(): readonly SwarmTask[] {
    return this.#tasks;
  }

  /** It is meant to run from now on. */
  want(app: RunnableApp): void {
    this.#app = app;
  }

  /** It is not. */
  release(): void {
    this.#app = undefined;
  }

  /** @param service of the app @param tasks of the app */
  take(service: SwarmService | undefined, tasks: readonly SwarmTask[]): void {
    this.#tasks = tasks;
    const ofService = tasks.filter(({ serviceId }) => serviceId === service?.id);
    const isChecked = this.#app?.manifest.health?.probe.kind === "exec";
    const status = statusOfTasks({ service, tasks: ofService, isWanted: this.isWanted, isChecked });
    this.#told.tell(
      service === undefined ? status : { ...status, tasks: shownTasks(ofService, service.replicas) },
    );
  }

  /** The swarm cannot be asked. */
  lost(reason: string): void {
    if (this.isWanted) this.#told.tell({ ...stoppedStatus, state: "UNKNOWN", reason });
  }

  /** As {@link ToldStatus.waitHealthy}. */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    await this.#told.waitHealthy(timeoutMs, signal);
  }
}
