/** Finds containers by ID, name, unique ID prefix, or compose project. */
import { invalidField, notFound, SvcError } from "../errors.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { composeProjectLabel } from "./attribution.ts";
import { listedName, type ContainerRecord } from "./container-record.ts";
import type { EngineState } from "./engine-state.ts";
import type { DockerEngine } from "./engine.ts";

const maxNamed = 5;
/** Concurrent inspections. */
const maxQuestions = 8;

/** Names and IDs that the engine accepts. Nothing else may become part of a path of its API. */
const namePattern = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;

/** Finds containers in their current state: one may have been created or changed a moment ago. */
export class ContainerFinder {
  readonly #engine: DockerEngine;
  readonly #state: EngineState;

  constructor(engine: DockerEngine, state: EngineState) {
    this.#engine = engine;
    this.#state = state;
  }

  /**
   * Asks the engine, because a cached list may lack a container that was created a moment ago.
   * @throws SvcError `not_found`; `invalid_request` when several IDs have this prefix
   */
  async find(idOrName: string): Promise<ContainerRecord> {
    // The engine puts a slash before names.
    const name = idOrName.replace(/^\//, "");
    if (!namePattern.test(name)) throw notFound("container", idOrName);
    try {
      const container = await this.refresh(name);
      if (container === undefined) throw notFound("container", idOrName);
      return container;
    } catch (error) {
      // Engines reject ambiguous prefixes with different errors.
      const isRefusal = error instanceof SvcError && error.code !== "unavailable";
      throw (isRefusal && (await this.#ambiguous(name))) || error;
    }
  }

  /** @returns the error for a prefix of several IDs; undefined when it is not ambiguous */
  async #ambiguous(prefix: string): Promise<SvcError | undefined> {
    // From the engine: the cache may lack a container that was created a moment ago.
    const containers = await this.#engine.call("list containers", (docker) =>
      docker.listContainers({ all: true }),
    );
    const matches = containers.filter(({ Id }) => Id.startsWith(prefix));
    if (matches.length < 2) return undefined;
    const named = matches.slice(0, maxNamed).map((each) => `${listedName(each)} (${each.Id.slice(0, 12)})`);
    const more = matches.length > maxNamed ? ` and ${matches.length - maxNamed} more` : "";
    const which = `"${prefix}" is the prefix of several IDs, such as ${named.join(", ")}${more}`;
    return invalidField("container", `${which}; use a longer prefix`);
  }

  /** Unordered; empty when there is no such project. */
  async members(composeProject: string): Promise<ContainerRecord[]> {
    const filters = { label: [`${composeProjectLabel}=${composeProject}`] };
    const list = await this.#engine.call("list containers", (docker) =>
      docker.listContainers({ all: true, filters }),
    );
    const members = await mapBounded(list, maxQuestions, ({ Id }) => this.refresh(Id));
    return members.filter((member) => member !== undefined);
  }

  /** By ID; undefined when it is gone. Lists show its new state from now on. */
  refresh(id: string): Promise<ContainerRecord | undefined> {
    return this.#state.refreshContainer(id);
  }
}
