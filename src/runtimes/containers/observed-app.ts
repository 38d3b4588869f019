/** The observed status of an app, and callers that wait for changes. */
import { isDeepStrictEqual } from "node:util";
import type { FollowedApp } from "../followed-apps.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import { hasStarted } from "../start-failed.ts";
import { StatusChanges } from "../status-changes.ts";

export abstract class ObservedApp implements FollowedApp {
  readonly id: string;
  readonly #onChange: () => void;
  readonly #changes: StatusChanges;
  #status: RuntimeStatus = stoppedStatus;

  /** @param onChange called when the status changes */
  constructor(id: string, onChange: () => void) {
    this.id = id;
    this.#onChange = onChange;
    this.#changes = new StatusChanges(id);
  }

  abstract detach(): void;

  get status(): RuntimeStatus {
    return this.#status;
  }

  /** Sets the status; an equal status keeps the same object and notifies nobody. */
  protected setStatus(status: RuntimeStatus): void {
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
    await this.#changes.until(() => hasStarted(this.id, this.#status), timeoutMs, signal);
  }
}
