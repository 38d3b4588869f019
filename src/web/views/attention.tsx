import { useMemo } from "preact/hooks";
import type { App } from "../../../gen/svc/v1/app_pb.ts";
import { ScheduleService, type Schedule } from "../../../gen/svc/v1/schedule_pb.ts";
import type { Api } from "../api.ts";
import { isComingBack, reasonOf } from "../app-state.ts";
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
import { RunState } from "./schedules/schedule-words.tsx";

const mostShown = 50;

/** What somebody should look at: alerts, jobs that fail, and apps that are not well. */
export function Attention({ api, node }: { api: Api; node: NodeView }) {
  const client = useMemo(() => api.client(ScheduleService), [api]);
  const jobs = useLive(node, ["run"], (signal) => everySchedule(client, signal), [client], readAgainMs);
  const alerts = node.status.value?.alerts ?? [];
  const failing = jobs.value?.filter(isFailing) ?? [];
  const troubled = [...(node.apps.value?.values() ?? [])].flatMap((app) => {
    const why = reasonsOf(app);
    return why.length === 0 ? [] : [{ app, why }];
  });
  const left = troubled.length - mostShown;
  const isWell = alerts.length + failing.length + troubled.length === 0 && jobs.value !== undefined;
  return (
    <section class="card" aria-labelledby="attention">
      <h2 id="attention">{texts.overview.attention}</h2>
      {isWell && <p>{texts.overview.nothing}</p>}
      <Failure says={jobs.failure} />
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
        {troubled.slice(0, mostShown).map(({ app, why }) => (
          <li key={app.id}>
            <a href={pathTo("apps", app.id)}>
              <Text of={app.name} />
            </a>{" "}
            <State state={app.state} />
            <Why of={why.join(" ")} />
          </li>
        ))}
        {left > 0 && (
          <li>
            <a href={pathTo("apps")}>{texts.overview.troublesLeft(left)}</a>
          </li>
        )}
      </ul>
    </section>
  );
}

/** Below what it is of, on a line of its own. */
function Why({ of }: { of: string }) {
  return (
    <div class="why">
      <Text of={of} />
    </div>
  );
}

/** Its last run came to nothing, and the next one would come. */
function isFailing({ enabled, lastRun }: Schedule): boolean {
  const failed = ["FAILED", "TIMED_OUT", "INTERRUPTED"];
  return enabled !== false && failed.includes(lastRun?.status ?? "");
}

/** Why somebody should look at an app; empty for one that is well. */
function reasonsOf(app: App): string[] {
  const { state, stateReason, health, healthReason, backups, restartRequired, availableVersion } = app;
  const isBroken = ["FAILED", "CRASHED", "UNKNOWN"].includes(state) || isComingBack(app);
  const isShort = missingTasks(app) !== undefined;
  // Where the swarm asks for its health, one that lacks a task says the same twice.
  const isSick = health === "unhealthy" && !(isShort && healthReason === stateReason);
  return [
    ...(isBroken || isShort ? [reasonOf(app)] : []),
    ...(isSick ? [sentence(healthReason ?? "")] : []),
    ...(backups?.overdue === true ? [texts.overview.noBackup] : []),
    ...(availableVersion === undefined ? [] : [texts.overview.outdated(availableVersion)]),
    ...(restartRequired ? [texts.overview.restart] : []),
  ];
}
