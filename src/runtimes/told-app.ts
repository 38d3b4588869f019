/** An app whose status is worked out and told, and who waits for it to be another one. */
import { isDeepStrictEqual } from "node:util";
import type { FollowedApp } from "./followed-apps.ts";
import { stoppedStatus, type RuntimeStatus } from "./runtime.ts";
import { hasComeUp } from "./start-failed.ts";
import { StatusChanges } from "./status-changes.ts";

export abstract class ToldApp implements FollowedApp {
  readonly id: string;
  readonly #onChange: () => void;
  readonly #changes: StatusChanges;
  #status: RuntimeStatus = stoppedStatus;

  /** @param onChange called when the status is another one */
  constructor(id: string, onChange: () => void) {
    this.id = id;
    this.#onChange = onChange;
    this.#changes = new StatusChanges(id);
  }

  abstract detach(): void;

  get status(): RuntimeStatus {
    return this.#status;
  }

  /** A status that did not change stays the same object, and nobody hears of it. */
  protected tell(status: RuntimeStatus): void {
    if (isDeepStrictEqual(status, this.#status)) return;
    this.#status = status;
    this.#changes.announce();
    this.#onChange();
  }

  /**
   * Resolves when the app runs and is healthy, or has no health check.
   * @throws SvcError `start_failed`, `deadline_exceeded`, `canceled`
   */
  async waitHealthy(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    await this.#changes.until(() => hasComeUp(this.id, this.#status), timeoutMs, signal);
  }
}
