/** The status of an app as it is told, and who waits for it to be another one. */
import { isDeepStrictEqual } from "node:util";
import { stoppedStatus } from "./container-status.ts";
import type { RuntimeStatus } from "./runtime.ts";
import { hasComeUp } from "./start-failed.ts";
import { StatusChanges } from "./status-changes.ts";

export class ToldStatus {
  readonly #appId: string;
  readonly #onChange: () => void;
  readonly #changes: StatusChanges;
  #now: RuntimeStatus = stoppedStatus;

  /** @param onChange called when the status is another one */
  constructor(appId: string, onChange: () => void) {
    this.#appId = appId;
    this.#onChange = onChange;
    this.#changes = new StatusChanges(appId);
  }

  get now(): RuntimeStatus {
    return this.#now;
  }

  /** A status that did not change stays the same object, and nobody hears of it. */
  tell(status: RuntimeStatus): void {
    if (isDeepStrictEqual(status, this.#now)) return;
    this.#now = status;
    this.#changes.announce();
    this.#onChange();
  }

  /**
   * Resolves when the app runs and is healthy, or has no health check.
   * @throws SvcError `start_failed`, `deadline_exceeded`, `canceled`
   */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    await this.#changes.until(() => hasComeUp(this.#appId, this.#now), timeoutMs, signal);
  }
}
