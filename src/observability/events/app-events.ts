/** The events that a change of an app causes. */
import type { AppState, EventKind } from "../../../gen/svc/v1/values.ts";
import type { AppChange, AppSnapshot } from "../../apps/records/app-changes.ts";
import { shownState } from "../../apps/records/app-view.ts";
import type { NodeEvent } from "./event-log.ts";

const kindOfState: Record<AppState, EventKind> = {
  INSTALLING: "app.busy",
  UPGRADING: "app.busy",
  RESTORING: "app.busy",
  REMOVING: "app.busy",
  STARTING: "app.starting",
  RUNNING: "app.running",
  STOPPING: "app.stopping",
  STOPPED: "app.stopped",
  FAILED: "app.failed",
  CRASHED: "app.crashed",
  UNKNOWN: "app.unknown",
};

/** In the order in which they are published. */
export function eventsOfChange({ before, now }: AppChange): NodeEvent[] {
  const record = (now ?? before)?.record;
  if (record === undefined) return [];
  const of = {
    ...{ appId: record.id, owner: record.ownerUid },
    ...(now !== undefined && { status: shownState(now.state, now.health) }),
  };
  const events: NodeEvent[] = [];
  const [ended, begun] = [before?.operation, now?.operation];
  if (ended !== undefined && ended.id !== begun?.id)
    events.push({ kind: "operation.ended", state: ended.kind, ...of });
  if (isInstalled(now) && !isInstalled(before))
    events.push({ kind: "app.installed", state: now.state, ...of });
  else if (isInstalled(now) && now.record !== before?.record)
    events.push({ kind: "app.changed", state: now.state, ...of });
  else if (now === undefined && isInstalled(before)) events.push({ kind: "app.removed", ...of });
  if (begun !== undefined && begun.id !== ended?.id)
    events.push({ kind: "operation.began", state: begun.kind, message: begun.phase, ...of });
  else if (begun !== undefined && begun.phase !== ended?.phase)
    events.push({ kind: "operation.changed", state: begun.kind, message: begun.phase, ...of });
  if (now === undefined) return events;
  if (now.state !== before?.state)
    events.push({ kind: kindOfState[now.state], state: now.state, message: now.reason, ...of });
  else if (now.reason !== before.reason || now.tasks !== before.tasks)
    events.push({ kind: "app.detail", state: now.state, message: now.reason, ...of });
  const { health, healthReason: message } = now;
  if (health !== before?.health && (health === "healthy" || health === "unhealthy"))
    events.push({ kind: `app.${health}`, state: now.state, message, ...of });
  return events;
}

function isInstalled(sight: AppSnapshot | undefined): sight is AppSnapshot {
  return sight !== undefined && sight.state !== "INSTALLING";
}
