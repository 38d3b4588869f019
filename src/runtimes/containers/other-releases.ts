/**
 * Ends running containers of other releases: started by another client, they would occupy the ports with other
 * settings.
 */
import { isUpState } from "../../engine/container-record.ts";
import type { AppContainers } from "./app-containers.ts";
import { releaseOf } from "./blocked-containers.ts";

export class OtherReleases {
  readonly #containers: AppContainers;
  /** IDs of containers that are being ended. */
  readonly #ending = new Set<string>();

  constructor(containers: AppContainers) {
    this.#containers = containers;
  }

  /** Stops the running containers of other releases. The next call retries those that could not be stopped. */
  end(release: string, graceMs: number): void {
    for (const container of this.#containers.known()) {
      const { id, state } = container;
      if (!isUpState(state) || releaseOf(container) === release || this.#ending.has(id)) continue;
      this.#ending.add(id);
      const forget = (): boolean => this.#ending.delete(id);
      this.#containers.stop(id, graceMs).then(forget, forget);
    }
  }
}
