/**
 * The state machine of an app's containers. It holds whether they should run, the current work on them, and whether the
 * engine or a daemon stopped in the middle. Each transition returns the next mode.
 */
import type { SvcError } from "../../errors.ts";
import { stoppedStatus, type RuntimeStatus } from "../runtime-status.ts";
import type { AwaitedParts } from "./container-status.ts";

export interface ContainerMode {
  /** Whether the app should run. */
  readonly shouldRun: boolean;
  /** The current work on the containers. While they are frozen, none starts. */
  readonly work: "none" | "starting" | "stopping" | "frozen";
  /** A start or stop was interrupted: the app may run only in part, or differ from its record. */
  readonly isUnfinished: boolean;
  /** The app stopped with the engine, not by itself, and must be started again. */
  readonly isLost: boolean;
  /** Set while the engine is unreachable. */
  readonly engineError?: SvcError | undefined;
}

export const initialMode: ContainerMode = {
  shouldRun: false,
  work: "none",
  isUnfinished: false,
  isLost: false,
};

export const transitions = {
  start: (mode: ContainerMode): ContainerMode => ({
    ...mode,
    shouldRun: true,
    isLost: false,
    work: "starting",
  }),

  /** The app's containers are being started: from now on, the start can be interrupted. */
  launch: (mode: ContainerMode): ContainerMode => ({ ...mode, isUnfinished: true }),

  /** The start failed, and the containers that had started were ended. */
  rejectStart: (mode: ContainerMode): ContainerMode => ({ ...mode, shouldRun: false, isUnfinished: false }),

  /** @param hasParts whether the app may have several containers, so that an interrupted stop leaves some running */
  stop: (mode: ContainerMode, hasParts: boolean): ContainerMode => ({
    ...mode,
    shouldRun: false,
    isLost: false,
    work: "stopping",
    isUnfinished: hasParts,
  }),

  /** The start or stop did all that it should. */
  finish: (mode: ContainerMode): ContainerMode => ({ ...mode, isUnfinished: false }),

  freeze: (mode: ContainerMode): ContainerMode => ({ ...mode, work: "frozen" }),

  /** The start, stop or pause is over, whatever its result. */
  rest: (mode: ContainerMode): ContainerMode => ({ ...mode, work: "none" }),

  /** The app should run, and may run already. @param wasCut its last start or stop was interrupted */
  reattach: (mode: ContainerMode, wasCut: boolean): ContainerMode => ({
    ...mode,
    shouldRun: true,
    isUnfinished: mode.isUnfinished || wasCut,
  }),

  /**
   * The containers were looked up after a time in which svc did not watch them.
   * @param isUp whether one of them runs @param isOver whether all have ended by themselves
   */
  find: (mode: ContainerMode, isUp: boolean, isOver = false): ContainerMode => ({
    ...mode,
    isLost: mode.shouldRun && (isUp ? mode.isUnfinished : !isOver),
  }),

  /** The current containers are known. @param isUp whether one of them runs */
  observe: (mode: ContainerMode, isUp: boolean): ContainerMode => ({
    ...mode,
    isLost: mode.isLost && (!isUp || mode.isUnfinished),
  }),

  loseEngine: (mode: ContainerMode, engineError: SvcError): ContainerMode => ({ ...mode, engineError }),

  regainEngine: (mode: ContainerMode): ContainerMode => ({ ...mode, engineError: undefined }),

  detach: (mode: ContainerMode): ContainerMode => ({ ...mode, shouldRun: false }),
};

/** Whether a container that ends may be started again now. */
export function mayRestart({ shouldRun, work, isLost, engineError }: ContainerMode): boolean {
  return shouldRun && work === "none" && !isLost && engineError === undefined;
}

/**
 * The app's status.
 * @param seen status of its containers @param isUp whether one of them runs
 * @param awaited what a start waits for
 */
export function statusIn(
  { shouldRun, work, isUnfinished, isLost, engineError }: ContainerMode,
  seen: RuntimeStatus,
  isUp: boolean,
  awaited: AwaitedParts,
): RuntimeStatus {
  if (work === "starting") return { ...stoppedStatus, state: "STARTING", ...awaited };
  if (work === "stopping") return { ...stoppedStatus, state: "STOPPING" };
  if (engineError !== undefined && (shouldRun || isUp)) {
    return { ...stoppedStatus, state: "UNKNOWN", reason: engineError.message };
  }
  const isPartial = isUnfinished && isUp;
  const reason = isPartial
    ? "the app's start or stop was interrupted"
    : "the container engine stopped, and the app with it";
  if (isLost) return { ...stoppedStatus, reason, isLost };
  return isPartial ? { ...seen, reason, isPartial } : seen;
}
