/** Converts the state of an app's containers to the status of the app. */
import type { ContainerRecord } from "../../engine/container-record.ts";
import type { ContainerEnd } from "./container-restarts.ts";
import { stoppedStatus, waitReason, type RuntimeStatus } from "../runtime-status.ts";

export interface StatusContext {
  /** Whether the app should run. */
  shouldRun: boolean;
  /** Exit codes of processes that exited by themselves, by container ID: a running container does not have them. */
  exitCodes: ReadonlyMap<string, number>;
  /** Result of svc's own probe; absent if the engine checks the health. */
  probed: RuntimeStatus["health"] | undefined;
  /** Output of containers before they ended, by ID. */
  lastLines: ReadonlyMap<string, readonly string[]>;
  /** Number of restarts by svc. */
  restarts: number;
  /** The decision for a container that has ended; `undefined` before it is made. */
  endOf: (container: Pick<ContainerRecord, "id" | "finishedAtMs">) => ContainerEnd | undefined;
}

type Facts = Pick<
  ContainerRecord,
  | "id"
  | "state"
  | "health"
  | "exitCode"
  | "wasOutOfMemory"
  | "error"
  | "startedAtMs"
  | "finishedAtMs"
  | "composeService"
>;

/** @param containers the app's containers; empty if they were removed or never created */
export function statusOf(containers: readonly Facts[], context: StatusContext): RuntimeStatus {
  const [only, ...others] = containers;
  if (only === undefined) {
    if (!context.shouldRun) return stoppedStatus;
    return { ...stoppedStatus, state: "CRASHED", reason: "the app's containers were removed outside of svc" };
  }
  const status =
    others.length === 0
      ? statusOfOne(only, "the container", context)
      : statusOfSeveral(
          containers.map((facts) =>
            statusOfOne(facts, `service "${facts.composeService ?? facts.id.slice(0, 12)}"`, context),
          ),
        );
  const known = { ...status, restarts: context.restarts };
  return status.state === "RUNNING" && context.probed !== undefined && status.health !== "unhealthy"
    ? { ...known, health: context.probed }
    : known;
}

function statusOfOne(facts: Facts, subject: string, context: StatusContext): RuntimeStatus {
  const { shouldRun, exitCodes, lastLines } = context;
  const { id, startedAtMs } = facts;
  const exitCode = facts.state === "running" ? exitCodes.get(id) : facts.exitCode;
  const known = { restarts: 0, ...(exitCode !== undefined && { exitCode }) };
  const ended = { ...known, health: "none", lastLines: lastLines.get(id) ?? [] } as const;
  switch (facts.state) {
    case "running":
    case "paused":
      return {
        ...known,
        state: "RUNNING",
        reason: facts.state === "paused" ? `${subject} is paused` : "",
        health: facts.health,
        ...(startedAtMs !== undefined && { startedAtMs }),
        lastLines: [],
      };
    case "restarting":
      return {
        ...ended,
        state: "STARTING",
        reason: `${describeEnd(facts, subject)}, and the engine restarts it`,
      };
    case "created": {
      if (!shouldRun) return stoppedStatus;
      const reason = facts.error === "" ? `${subject} was never started` : describeEnd(facts, subject);
      return { ...stoppedStatus, state: "CRASHED", reason };
    }
    case "removing":
    case "dead":
    case "exited": {
      if (!shouldRun) return stoppedStatus;
      const { restartAtMs, why = "" } = context.endOf(facts) ?? {};
      const reason = describeEnd(facts, subject);
      if (restartAtMs !== undefined) {
        const restarts = context.restarts === 1 ? "1 restart" : `${context.restarts} restarts`;
        const backoff = `BACKOFF after ${restarts}: ${reason}`;
        return {
          ...ended,
          state: "STARTING",
          reason: backoff,
          nextRestartAtMs: restartAtMs,
          endedReason: reason,
        };
      }
      const endedWell = exitCode === 0 && facts.error === "" && !facts.wasOutOfMemory;
      const state = endedWell ? "STOPPED" : "CRASHED";
      return { ...ended, state, reason: why === "" || endedWell ? reason : `${reason}; ${why}` };
    }
  }
}

/** An app runs if any of its containers does; failing ones show in its health. */
function statusOfSeveral(all: readonly RuntimeStatus[]): RuntimeStatus {
  const running = all.filter(({ state }) => state === "RUNNING");
  const [troubled] = all
    .filter(({ state }) => state === "CRASHED" || state === "STARTING")
    // A container that is not restarted is worse than one that is.
    .toSorted((a, b) => (a.nextRestartAtMs ?? 0) - (b.nextRestartAtMs ?? 0));
  const starts = running.flatMap(({ startedAtMs }) => startedAtMs ?? []);
  const exitCode = (troubled ?? all.find((status) => status.exitCode !== undefined))?.exitCode;
  const known = {
    restarts: 0,
    ...(exitCode !== undefined && { exitCode }),
    ...(troubled?.nextRestartAtMs !== undefined && { nextRestartAtMs: troubled.nextRestartAtMs }),
    ...(troubled?.endedReason !== undefined && { endedReason: troubled.endedReason }),
    lastLines: troubled?.lastLines ?? [],
  };
  if (running.length > 0) {
    const reason = troubled?.reason ?? running.find((status) => status.reason !== "")?.reason ?? "";
    return {
      ...known,
      state: "RUNNING",
      reason,
      health: troubled ? "unhealthy" : worstHealth(running),
      ...(troubled?.state === "CRASHED" && { isPartial: true }),
      ...(starts.length > 0 && { startedAtMs: Math.min(...starts) }),
    };
  }
  const first = troubled ?? all.find(({ reason }) => reason !== "") ?? stoppedStatus;
  return { ...known, state: first.state, reason: first.reason, health: "none" };
}

export function worstHealth(all: readonly RuntimeStatus[]): RuntimeStatus["health"] {
  const order = ["unhealthy", "starting", "healthy"] as const;
  return order.find((word) => all.some(({ health }) => health === word)) ?? "none";
}

/** How a container ended, without a full stop. */
export function describeEnd(
  { exitCode, wasOutOfMemory, error }: Pick<Facts, "exitCode" | "wasOutOfMemory" | "error">,
  subject = "the container",
): string {
  if (error !== "") return `the engine could not start ${subject}: ${error}`;
  if (wasOutOfMemory) return `${subject} ran out of memory (exit code ${exitCode})`;
  return `${subject} exited with code ${exitCode}`;
}

/** The services that a start waits for. */
export type AwaitedParts = Pick<RuntimeStatus, "reason" | "waitsFor">;

export const unknownParts: AwaitedParts = { reason: "" };

export function awaitedIn(containers: readonly Facts[]): AwaitedParts {
  const names = (isIncluded: (facts: Facts) => boolean): string =>
    [
      ...new Set(
        containers
          .filter((each) => isIncluded(each) && (each.composeService ?? "") !== "")
          .map(({ composeService }) => JSON.stringify(composeService)),
      ),
    ].join(", ");
  const checked = names(
    ({ state, health }) => state === "running" && ["starting", "unhealthy"].includes(health),
  );
  if (checked !== "") {
    const waitsFor = `the health check of ${checked}`;
    return { reason: waitReason(waitsFor), waitsFor };
  }
  const created = names(({ state }) => state === "created");
  return created === "" ? unknownParts : { reason: `the app has not started ${created} yet` };
}
