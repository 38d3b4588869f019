import { useMemo } from "preact/hooks";
import type { App } from "../../../gen/svc/v1/app_pb.ts";
import { ScheduleService, type Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import type { Api } from "../api.ts";
import { isRestartPending, reasonOf, shownState } from "../app-state.ts";
import { missingTasks } from "../../lib/task-count.ts";
import { useLive } from "../live.ts";
import type { NodeView } from "../node-view.ts";
import { Failure } from "../parts/failure.tsx";
import { State } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { sentence } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { everySchedule, readAgainMs } from "./schedules/all-schedules.ts";
import { RunState } from "./schedules/schedule-text.tsx";

const maxShown = 50;

/** Alerts, failing jobs, and unhealthy or failed apps. */
export function Attention({ api, node }: { api: Api; node: NodeView }) {
  const client = useMemo(() => api.client(ScheduleService), [api]);
  const jobs = useLive(node, ["run"], (signal) => everySchedule(client, signal), [client], readAgainMs);
  const alerts = node.status.value?.alerts ?? [];
  const failing = jobs.value?.filter(isFailing) ?? [];
  const troubled = [...(node.apps.value?.values() ?? [])].flatMap((app) => {
    const why = reasonsOf(app);
    return why.length === 0 ? [] : [{ app, why }];
  });
  const hiddenCount = troubled.length - maxShown;
  const isWell = alerts.length + failing.length + troubled.length === 0 && jobs.value !== undefined;
  return (
    <section class="card" aria-labelledby="attention">
      <h2 id="attention">{texts.overview.attention}</h2>
      {isWell && <p>{texts.overview.nothing}</p>}
      <Failure message={jobs.failure} />
      <ul class="troubles">
        {alerts.map(({ name, subject, message }) => (
          <li key={`${name} ${subject}`}>
            <strong>
              <Text of={subject || name} />
            </strong>
            <Why of={sentence(message)} />
          </li>
        ))}
        {failing.map(({ owner, id, lastRun }) => (
          <li key={`${String(owner)} ${id}`}>
            <a href={pathTo("schedules", String(owner), id)}>
              <Text of={id} />
            </a>{" "}
            {lastRun !== undefined && <RunState run={lastRun} />}
            <Why of={sentence(lastRun?.error || texts.overview.failedJob)} />
          </li>
        ))}
        {troubled.slice(0, maxShown).map(({ app, why }) => (
          <li key={app.id}>
            <a href={pathTo("apps", app.id)}>
              <Text of={app.name} />
            </a>{" "}
            <State state={shownState(app)} />
            <Why of={why.join(" ")} />
          </li>
        ))}
        {hiddenCount > 0 && (
          <li>
            <a href={pathTo("apps")}>{texts.overview.troublesLeft(hiddenCount)}</a>
          </li>
        )}
      </ul>
    </section>
  );
}

/** An explanation below the entry, on a separate line. */
function Why({ of }: { of: string }) {
  return (
    <div class="why">
      <Text of={of} />
    </div>
  );
}

/** Whether the last run of an enabled job failed. */
function isFailing({ enabled, lastRun }: Schedule): boolean {
  const failed = ["FAILED", "TIMED_OUT", "INTERRUPTED"];
  return enabled !== false && failed.includes(lastRun?.status ?? "");
}

/** Problems of an app; empty if there are none. */
function reasonsOf(app: App): string[] {
  const { state, stateReason, health, healthReason, backups, restartRequired, availableVersion } = app;
  const isBroken = ["FAILED", "CRASHED", "UNKNOWN"].includes(state) || isRestartPending(app);
  const isShort = missingTasks(app) !== undefined;
  // If the swarm checks the health, a missing task would be reported twice.
  const isUnhealthy = health === "unhealthy" && !(isShort && healthReason === stateReason);
  return [
    ...(isBroken || isShort ? [reasonOf(app)] : []),
    ...(isUnhealthy ? [sentence(healthReason ?? "")] : []),
    ...(backups?.overdue === true ? [texts.overview.noBackup] : []),
    ...(availableVersion === undefined ? [] : [texts.overview.outdated(availableVersion)]),
    ...(restartRequired ? [texts.overview.restart] : []),
  ];
}
