/** Which containers somebody means: by an id, a name, the beginning of an id that only one has, or a compose project. */
import { invalidField, notFound, SvcError } from "../errors.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { composeProjectLabel } from "./attribution.ts";
import { listedName, type ContainerRecord } from "./container-record.ts";
import type { EngineState } from "./engine-state.ts";
import type { DockerEngine } from "./engine.ts";

const maxNamed = 5;
/** So many containers are asked about at once. */
const maxQuestions = 8;

/** What the engine accepts as a name or an id: nothing else may become part of a path of its API. */
const namePattern = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;

/** Finds containers as they are after the call: one may have been made or changed a moment ago. */
export class ContainerFinder {
  readonly #engine: DockerEngine;
  readonly #state: EngineState;

  constructor(engine: DockerEngine, state: EngineState) {
    this.#engine = engine;
    this.#state = state;
  }

  /**
   * The engine decides, as no list of ours can: a container whose id begins like that may have come a moment ago.
   * @throws SvcError `not_found`; `invalid_request` when several ids begin like that
   */
  async find(wanted: string): Promise<ContainerRecord> {
    // The engine puts a slash before names.
    const name = wanted.replace(/^\//, "");
    if (!namePattern.test(name)) throw notFound("container", wanted);
    try {
      const container = await this.refresh(name);
      if (container === undefined) throw notFound("container", wanted);
      return container;
    } catch (error) {
      // Engines differ in how they refuse what begins several ids.
      const isRefusal = error instanceof SvcError && error.code !== "unavailable";
      throw (isRefusal && (await this.#ambiguous(name))) || error;
    }
  }

  /** Undefined where it is none. */
  async #ambiguous(prefix: string): Promise<SvcError | undefined> {
    // The engine again: our own picture may not have the one that came a moment ago.
    const containers = await this.#engine.call("list containers", (docker) =>
      docker.listContainers({ all: true }),
    );
    const matches = containers.filter(({ Id }) => Id.startsWith(prefix));
    if (matches.length < 2) return undefined;
    const named = matches.slice(0, maxNamed).map((each) => `${listedName(each)} (${each.Id.slice(0, 12)})`);
    const more = matches.length > maxNamed ? ` and ${matches.length - maxNamed} more` : "";
    const which = `"${prefix}" begins several ids, such as ${named.join(", ")}${more}`;
    return invalidField("container", `${which}: give more of it`);
  }

  /** In no order; empty when there is no such project. */
  async members(composeProject: string): Promise<ContainerRecord[]> {
    const filters = { label: [`${composeProjectLabel}=${composeProject}`] };
    const list = await this.#engine.call("list containers", (docker) =>
      docker.listContainers({ all: true, filters }),
    );
    const members = await mapBounded(list, maxQuestions, ({ Id }) => this.refresh(Id));
    return members.filter((member) => member !== undefined);
  }

  /** One by its id; undefined when it is gone. Lists show it so from now on. */
  refresh(id: string): Promise<ContainerRecord | undefined> {
    return this.#state.refreshContainer(id);
  }
}
