/** Containers of releases that are not the app: whoever starts one of them would have it hold the ports, with other settings. */
import { isUpState } from "../docker/container-record.ts";
import type { AppContainers } from "./app-containers.ts";
import { releaseOf } from "./stuck-containers.ts";

export class StrayContainers {
  readonly #containers: AppContainers;
  /** Ids of those that are being ended. */
  readonly #ending = new Set<string>();

  constructor(containers: AppContainers) {
    this.#containers = containers;
  }

  /** Ends those that run, as far as is known. One that could not be ended is tried again the next time. */
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
