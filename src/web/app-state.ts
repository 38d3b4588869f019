/** What the states of apps mean. */
import type { App } from "../../gen/svc/v1/app_pb.ts";
import { sentence } from "./plain-text.ts";
import { texts } from "./texts.ts";

/** Whether it runs, or is on its way to: what needs it stopped has to stop it. */
export function isRunning({ state }: App): boolean {
  return state === "RUNNING" || state === "STARTING";
}

/** It ended by itself, and waits to be started again. */
export function isComingBack({ nextRestartAt }: App): boolean {
  return nextRestartAt !== undefined;
}

/** Why it is in its state; empty where the state says everything. */
export function reasonOf({ stateReason, endedReason, restarts }: App): string {
  return endedReason === undefined ? sentence(stateReason) : texts.app.startsAgain(endedReason, restarts);
}
