/** Containers of releases that are not the app: whoever starts one of them would have it hold the ports, with other settings. */
import { isUpState } from "../docker/container-record.ts";
import { releaseLabel, type AppContainers } from "./app-containers.ts";

export class StrayContainers {
  readonly #containers: AppContainers;
  /** Ids of those that are being ended. */
  readonly #ending = new Set<string>();

  constructor(containers: AppContainers) {
    this.#containers = containers;
  }

  /** Ends those that run, as far as is known. One that could not be ended is tried again the next time. */
  end(release: string, graceMs: number): void {
    for (const { id, state, labels } of this.#containers.known()) {
      if (!isUpState(state) || labels[releaseLabel] === release || this.#ending.has(id)) continue;
      this.#ending.add(id);
      const forget = (): boolean => this.#ending.delete(id);
      this.#containers.stop(id, graceMs).then(forget, forget);
    }
  }
}
