/** Phases of operations, and the phases in which an interruption leaves an app partly started or stopped. */
import type { AppOperationKind } from "../../../gen/svc/v1/values.ts";
import type { AppsContext } from "../apps-context.ts";

/** Phases of a backup. From `away` or `frozen` on the app must be resumed. */
export type HoldPhase = "read" | "away" | "frozen";

/** Phases of a restore. Before `swap` nothing has changed; from `done` on the restored data is committed. */
export type RestorePhase = "stage" | "swap" | "done";

/** Phases of an install. In `files`, the app has nothing on the container engine yet. */
export type InstallPhase = "files" | "create";

/** Phases of a removal. In `delete`, the app is stopped. */
export type RemovalPhase = "stop" | "delete";

/** Phases of an adoption. From `switch` on the old containers are stopped; from `switched` on the app replaces them. */
export type AdoptionPhase = "create" | "switch" | "switched";

/** Phases in which the app may be partly started or stopped. */
const leavesHalf: Partial<Record<AppOperationKind, readonly string[]>> = {
  start: ["start"],
  restart: ["start"],
  repull: ["start"],
  backup: ["away"] satisfies HoldPhase[],
  restore: ["swap", "done"] satisfies RestorePhase[],
  adopt: ["switch"] satisfies AdoptionPhase[],
};

/** Whether only a part of an app may run: a process exited while it stopped or started the app. */
export async function isLeftHalf(
  { registry, operations }: Pick<AppsContext, "registry" | "operations">,
  appId: string,
): Promise<boolean> {
  const operation = registry.operationOf(appId);
  if (operation === undefined) return false;
  const phases = leavesHalf[operation.kind] ?? [];
  return phases.includes(operation.phase) && !(await operations.isLive(operation));
}
