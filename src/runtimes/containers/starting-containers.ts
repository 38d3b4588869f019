/** Waits until the containers of a starting app have run for a while. */
import { setTimeout as sleep } from "node:timers/promises";
import type { ContainerRecord } from "../../engine/container-record.ts";
import { SvcError } from "../../errors.ts";
import type { AppContainers } from "./app-containers.ts";
import { describeEnd } from "./container-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { ObservedContainers } from "./observed-containers.ts";
import { rejectedStart, startFailed } from "../start-failed.ts";

export interface StartingContainersOptions {
  containers: AppContainers;
  seen: ObservedContainers;
  /** An app that ends within this time after its start has failed to start. */
  settleMs: number;
  /** Loads the app's containers, including those with these IDs. */
  refresh: (made: readonly string[]) => Promise<readonly ContainerRecord[]>;
}

/**
 * Resolves when the launched containers have run long enough.
 * @param launch starts them and resolves to the IDs of created containers
 * @param failed resolves early when a container fails, which ends the wait
 * @throws SvcError `start_failed` with exit code and last lines; `unavailable`
 */
export async function untilSettled(
  app: RunnableApp,
  launch: () => Promise<readonly string[]>,
  failed: Promise<undefined>,
  { containers, seen, settleMs, refresh }: StartingContainersOptions,
): Promise<void> {
  try {
    const made = await launch();
    await Promise.race([failed, sleep(settleMs)]);
    await requireStarted(app, await refresh(made), seen);
  } catch (error) {
    // A part of an app would look like a running app.
    await containers.endAll(app.manifest.stop.graceMs);
    throw rejectedStart(app.id, error);
  }
}

/**
 * @throws SvcError `start_failed` with exit code and last lines; `unavailable` when one was ended through the engine
 */
async function requireStarted(
  app: RunnableApp,
  members: readonly ContainerRecord[],
  seen: ObservedContainers,
): Promise<void> {
  const failed = seen.failedOf(members);
  if (failed === undefined && members.length > 0) {
    for (const container of members) await seen.verify(container, app);
  }
  if (seen.exceededLimit !== undefined) throw startFailed(app.id, seen.exceededLimit);
  if (failed === undefined && members.length > 0) return;
  if (failed === undefined) throw startFailed(app.id, "the app's containers were removed");
  const subject =
    failed.composeService === undefined ? "the container" : `service "${failed.composeService}"`;
  if (seen.wasKilled(failed.id)) {
    const message = `app "${app.id}" did not start: another client of the container engine stopped ${subject}`;
    throw new SvcError("unavailable", message);
  }
  const { exitCode, state, error } = failed;
  if (state === "created" && error === "") throw startFailed(app.id, `${subject} was never started`);
  const lastLines = await seen.lastLines(failed);
  throw startFailed(app.id, describeEnd(failed, subject), { exitCode, lastLines });
}
