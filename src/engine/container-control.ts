/** Starts, stops, pauses and removes containers that no installed app owns. */
import { notFound, SvcError } from "../errors.ts";
import type { ControlContainerRequestAction } from "../../gen/svc/v1/values.ts";
import type { Attribution } from "./ownership.ts";
import type { ContainerFinder } from "./container-finder.ts";
import type { ContainerRecord, ContainerState } from "./container-record.ts";
import type { SkippedItem } from "./prune-plan.ts";
import type { EngineOperations } from "./watched-engine.ts";

export type ControlAction = ControlContainerRequestAction;

/** One or the other. */
export type ControlTarget = { readonly container: string } | { readonly composeProject: string };

export interface ControlResult {
  /** In the order in which they were changed. */
  readonly controlled: readonly Pick<ContainerRecord, "id" | "name">[];
  readonly skipped: readonly SkippedItem[];
}

export interface ContainerControlOptions {
  engine: EngineOperations;
  finder: ContainerFinder;
  attribution: () => Attribution;
}

/** Longer than a container's grace period, which the engine waits for before it kills. */
const timeoutMs = 330_000;

/** States in which an action has an effect. */
const applies: Readonly<Record<ControlAction, ReadonlySet<ContainerState>>> = {
  start: new Set(["created", "exited"]),
  stop: new Set(["running", "paused", "restarting"]),
  restart: new Set(["created", "running", "exited", "restarting"]),
  pause: new Set(["running"]),
  unpause: new Set(["paused"]),
  remove: new Set(["created", "exited", "dead"]),
};

/** States in which nothing is left to do for an action. */
const reached: Readonly<Record<ControlAction, ReadonlySet<ContainerState>>> = {
  start: new Set(["running", "restarting"]),
  stop: new Set(["created", "exited", "dead"]),
  restart: new Set(),
  pause: new Set(["paused"]),
  unpause: new Set(["running"]),
  remove: new Set(["removing"]),
};

/** Actions that start things go from oldest to newest, these from newest to oldest. */
const newestFirst: ReadonlySet<ControlAction> = new Set(["stop", "pause", "remove"]);

export class ContainerControl {
  readonly #options: ContainerControlOptions;

  constructor(options: ContainerControlOptions) {
    this.#options = options;
  }

  /**
   * Skips a container that is already in the requested state, and members of a project to which the action does not
   * apply. Once started, it runs to its end.
   * @throws SvcError `owned_by_app`; `not_found`; `invalid_request` for an ambiguous ID; `denied`
   *   (failed_precondition) when the action does not apply to the one container that was named, or the engine rejects
   *   it
   */
  async control(target: ControlTarget, action: ControlAction): Promise<ControlResult> {
    if ("container" in target) return this.#one(await this.#options.finder.find(target.container), action);
    return this.#project(target.composeProject, action);
  }

  async #one(container: ContainerRecord, action: ControlAction): Promise<ControlResult> {
    this.#rejectOwned([container]);
    if (applies[action].has(container.state)) {
      await this.#carryOut(container, action);
      return { controlled: [container], skipped: [] };
    }
    if (reached[action].has(container.state)) {
      const { id, name } = container;
      return { controlled: [], skipped: [{ id, name, reason: reasonOf(container) }] };
    }
    const advice = action === "remove" ? "; stop it first" : "";
    throw new SvcError("not_possible", `container "${container.name}" is ${container.state}${advice}`);
  }

  async #project(project: string, action: ControlAction): Promise<ControlResult> {
    const members = await this.#options.finder.members(project);
    if (members.length === 0) throw notFound("compose project", project);
    this.#rejectOwned(members);
    members.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.name < b.name ? -1 : 1));
    if (newestFirst.has(action)) members.reverse();
    const controlled: ContainerRecord[] = [];
    const skipped: SkippedItem[] = [];
    for (const member of members) {
      const refusal = await this.#tryMember(member, action);
      if (refusal === undefined) controlled.push(member);
      else skipped.push({ id: member.id, name: member.name, reason: refusal });
    }
    return { controlled, skipped };
  }

  /**
   * @returns why the container is skipped; undefined when the action succeeded. A failure does not keep the other
   *   members from being changed.
   */
  async #tryMember({ id }: ContainerRecord, action: ControlAction): Promise<string | undefined> {
    try {
      // Inspect again: actions on earlier members may have changed this one.
      const member = await this.#options.finder.refresh(id);
      if (member === undefined) return "the container is gone";
      if (!applies[action].has(member.state)) return reasonOf(member);
      await this.#carryOut(member, action);
      return undefined;
    } catch (error) {
      if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
      return error.message;
    }
  }

  #rejectOwned(containers: readonly ContainerRecord[]): void {
    const attribution = this.#options.attribution();
    for (const { name, labels } of containers) {
      const appId = attribution("container", { labels, names: [name] });
      if (appId === undefined) continue;
      throw new SvcError(
        "owned_by_app",
        `container "${name}" belongs to the app "${appId}": use svc start|stop|restart|remove ${appId}`,
        { payload: { appId } },
      );
    }
  }

  async #carryOut({ id, name }: ContainerRecord, action: ControlAction): Promise<void> {
    await this.#options.engine.operate(
      `${action} the container ${name}`,
      async (docker) => {
        const container: Record<ControlAction, () => Promise<unknown>> = docker.getContainer(id);
        // Anonymous volumes of a removed container stay; a prune removes them.
        await container[action]();
      },
      { timeoutMs, waitsFor: "stop" },
    );
    // Later reads must see the change, even before its event has arrived.
    await this.#options.finder.refresh(id);
  }
}

function reasonOf({ state }: ContainerRecord): string {
  return `the container is ${state}`;
}
