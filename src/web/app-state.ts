/** What the states of apps mean. */
import type { App } from "../../gen/svc/v1/app_pb.ts";

/** Whether it runs, or is on its way to: what needs it stopped has to stop it. */
export function isRunning({ state }: App): boolean {
  return state === "RUNNING" || state === "STARTING";
}
