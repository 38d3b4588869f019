/** Starting, stopping, pausing and removing containers that no installed app owns (specification 4.3). */
import { failedPrecondition, notFound, SvcError } from "../errors.ts";
import type { ControlContainerRequestAction } from "../../gen/svc/v1/words.ts";
import type { Attribution } from "./attribution.ts";
import type { ContainerRecord, ContainerState } from "./container-record.ts";
import { findContainer } from "./container-target.ts";
import type { DockerEngine } from "./engine.ts";
import type { SkippedItem } from "./prune-plan.ts";

export type ControlAction = ControlContainerRequestAction;

/** One or the other. */
export type ControlTarget = { readonly container: string } | { readonly composeProject: string };

export interface ControlResult {
  /** In the order in which it was done. */
  readonly controlled: readonly Pick<ContainerRecord, "id" | "name">[];
  readonly skipped: readonly SkippedItem[];
}

export interface ContainerControlOptions {
  engine: DockerEngine;
  /** All containers, as they are now. */
  containers: () => Promise<readonly ContainerRecord[]>;
  attribution: () => Attribution;
}

/** Beyond the container's own grace period, which the engine waits for before it kills. */
const timeoutMs = 330_000;

/** States in which an action does something. */
const applies: Readonly<Record<ControlAction, ReadonlySet<ContainerState>>> = {
  start: new Set(["created", "exited"]),
  stop: new Set(["running", "paused", "restarting"]),
  restart: new Set(["created", "running", "exited", "restarting"]),
  pause: new Set(["running"]),
  unpause: new Set(["paused"]),
  remove: new Set(["created", "exited", "dead"]),
};

/** States that an action leads to: nothing is left to do. */
const reached: Readonly<Record<ControlAction, ReadonlySet<ContainerState>>> = {
  start: new Set(["running", "restarting"]),
  stop: new Set(["created", "exited", "dead"]),
  restart: new Set(),
  pause: new Set(["paused"]),
  unpause: new Set(["running"]),
  remove: new Set(["removing"]),
};

/** What builds up goes oldest first, what takes down newest first. */
const newestFirst: ReadonlySet<ControlAction> = new Set(["stop", "pause", "remove"]);

export class ContainerControl {
  readonly #options: ContainerControlOptions;

  constructor(options: ContainerControlOptions) {
    this.#options = options;
  }

  /**
   * A container that is already as it shall be is passed over, as are a project's members to which the action does not
   * apply. Begun, it goes on to its end.
   * @throws SvcError `owned_by_app`; `not_found`; `invalid_request` for an ambiguous id; `denied` (failed_precondition) when
   *   the action does not apply to the one container that was named, or the engine refuses it
   */
  async control(target: ControlTarget, action: ControlAction): Promise<ControlResult> {
    const containers = await this.#options.containers();
    if ("container" in target) return this.#one(findContainer(containers, target.container), action);
    return this.#project(containers, target.composeProject, action);
  }

  async #one(container: ContainerRecord, action: ControlAction): Promise<ControlResult> {
    this.#refuseOwned([container]);
    if (applies[action].has(container.state)) {
      await this.#carryOut(container, action);
      return { controlled: [container], skipped: [] };
    }
    if (reached[action].has(container.state)) return { controlled: [], skipped: [skip(container)] };
    const advice = action === "remove" ? "; stop it first" : "";
    throw failedPrecondition("denied", `container "${container.name}" is ${container.state}${advice}`);
  }

  async #project(
    containers: readonly ContainerRecord[],
    project: string,
    action: ControlAction,
  ): Promise<ControlResult> {
    const members = containers.filter(({ composeProject }) => composeProject === project);
    if (members.length === 0) throw notFound("compose project", project);
    this.#refuseOwned(members);
    members.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.name < b.name ? -1 : 1));
    if (newestFirst.has(action)) members.reverse();
    const controlled: ContainerRecord[] = [];
    const skipped: SkippedItem[] = [];
    for (const member of members) {
      if (!applies[action].has(member.state)) {
        skipped.push(skip(member));
        continue;
      }
      try {
        await this.#carryOut(member, action);
        controlled.push(member);
      } catch (error) {
        // One that fails keeps the others from nothing.
        if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
        skipped.push({ id: member.id, name: member.name, reason: error.message });
      }
    }
    return { controlled, skipped };
  }

  #refuseOwned(containers: readonly ContainerRecord[]): void {
    const attribution = this.#options.attribution();
    for (const { name, labels } of containers) {
      const appId = attribution(labels);
      if (appId === undefined) continue;
      throw failedPrecondition(
        "owned_by_app",
        `container "${name}" belongs to the app "${appId}": use svc app start|stop|restart|remove ${appId}`,
        { payload: { appId } },
      );
    }
  }

  async #carryOut({ id, name }: ContainerRecord, action: ControlAction): Promise<void> {
    await this.#options.engine.operate(
      `${action} the container ${name}`,
      async (docker) => {
        const container = docker.getContainer(id);
        switch (action) {
          case "start":
            return container.start() as Promise<unknown>;
          case "stop":
            return container.stop() as Promise<unknown>;
          case "restart":
            return container.restart() as Promise<unknown>;
          case "pause":
            return container.pause() as Promise<unknown>;
          case "unpause":
            return container.unpause() as Promise<unknown>;
          case "remove":
            // Its anonymous volumes stay: a prune finds them.
            return container.remove({ v: false }) as Promise<unknown>;
        }
      },
      { timeoutMs },
    );
  }
}

function skip({ id, name, state }: ContainerRecord): SkippedItem {
  return { id, name, reason: `it is ${state}` };
}
