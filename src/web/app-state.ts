/** The states of apps. */
import type { App } from "../../gen/svc/v1/app_pb.ts";
import { sentence } from "./plain-text.ts";
import { texts } from "./texts.ts";

/** Whether it is running or starting, so that an operation on a stopped app must stop it first. */
export function isRunning({ state }: App): boolean {
  return state === "RUNNING" || state === "STARTING";
}

/** The state to show; older daemons do not send it. */
export function shownState({ state, status }: App): string {
  return status || state;
}

/** Whether it exited and waits to be restarted. */
export function isRestartPending({ nextRestartAt }: App): boolean {
  return nextRestartAt !== undefined;
}

/** Why it is in its state; empty if the state needs no explanation. */
export function reasonOf({ stateReason, endedReason, restarts }: App): string {
  return endedReason === undefined ? sentence(stateReason) : texts.app.startsAgain(endedReason, restarts);
}

/** Volumes and paths that the app has adopted. */
export function adoptedItems({ adopted }: App): string[] {
  return adopted === undefined ? [] : [...adopted.volumes, ...adopted.paths];
}
