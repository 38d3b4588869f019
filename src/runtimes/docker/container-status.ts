/** From what the engine says of an app's container to what svc says of the app. */
import type { ContainerFacts } from "../../docker/container-record.ts";
import type { RuntimeStatus } from "../runtime.ts";

/** An app that was never started here, or stopped by its owner. */
export const stoppedStatus: RuntimeStatus = Object.freeze({
  state: "STOPPED",
  reason: "",
  health: "none",
  restarts: 0,
  lastLines: [],
});

export interface StatusContext {
  /** Whether svc means the app to run. */
  isWanted: boolean;
  /** Of the last process that ended by itself, where that was seen: a container that runs again does not tell. */
  exitCode?: number | undefined;
  /** From a probe of svc's own; absent where the engine checks. */
  probed?: RuntimeStatus["health"] | undefined;
  /** What it printed before it ended. */
  lastLines: readonly string[];
}

/** @param facts `undefined` when there is no container any more */
export function statusOf(facts: ContainerFacts | undefined, context: StatusContext): RuntimeStatus {
  const { isWanted, probed, lastLines } = context;
  if (facts === undefined) {
    return isWanted
      ? { ...stoppedStatus, state: "CRASHED", reason: "its container was removed outside of svc" }
      : stoppedStatus;
  }
  const { restarts, startedAtMs } = facts;
  const exitCode = facts.state === "running" ? context.exitCode : facts.exitCode;
  switch (facts.state) {
    case "running":
    case "paused":
      return {
        state: "RUNNING",
        reason: facts.state === "paused" ? "its container is paused" : "",
        health: probed ?? facts.health,
        ...(startedAtMs !== undefined && { startedAtMs }),
        ...(exitCode !== undefined && { exitCode }),
        restarts,
        lastLines: [],
      };
    case "restarting":
      return {
        state: "STARTING",
        reason: `${endOf(facts)}, and the engine starts it again`,
        health: "none",
        ...(exitCode !== undefined && { exitCode }),
        restarts,
        lastLines,
      };
    case "created":
      return stoppedStatus;
    case "removing":
    case "dead":
    case "exited": {
      if (!isWanted) return stoppedStatus;
      const endedWell = exitCode === 0 && facts.error === "" && !facts.wasOutOfMemory;
      return {
        state: endedWell ? "STOPPED" : "CRASHED",
        reason: endOf(facts),
        health: "none",
        ...(exitCode !== undefined && { exitCode }),
        restarts,
        lastLines,
      };
    }
  }
}

/** Whether a container runs, or will without anybody's doing. */
export function isUpState(state: string): boolean {
  return state === "running" || state === "restarting" || state === "paused";
}

/** How a container ended, without a full stop. */
export function endOf({ exitCode, wasOutOfMemory, error }: ContainerFacts): string {
  if (error !== "") return `the engine could not start it: ${error}`;
  if (wasOutOfMemory) return `it ran out of memory (exit code ${exitCode})`;
  return `it ended with exit code ${exitCode}`;
}
