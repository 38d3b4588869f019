import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Schedule, ScheduleAction, ScheduleRun } from "../../../../gen/svc/v1/schedule_pb.ts";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { scheduleTexts as labels } from "../../texts/schedules.ts";

/** Short descriptions of schedules and runs. */
export function ActionSummary({ action }: { action: ScheduleAction | undefined }) {
  if (action === undefined) return null;
  const { type, app, command, url, method } = action;
  const what = command ?? (url === undefined ? (app ?? "") : `${method ?? "GET"} ${url}`);
  return (
    <>
      {labels.does[type] ?? type} <Text of={what} />
    </>
  );
}

export function NextRun({
  schedule: { enabled, disabledReason, nextRunUnix, laterRunUnix, waiting },
}: {
  schedule: Schedule;
}) {
  if (disabledReason !== "") return <Text of={disabledReason} />;
  if (enabled === false) return <>{labels.off}</>;
  if (waiting !== undefined) return <>{labels.waiting[waiting.reason] ?? waiting.reason}</>;
  const next = nextRunUnix ?? laterRunUnix;
  return next === undefined ? <>{labels.noNext}</> : <When at={new Date(Number(next) * 1000)} />;
}

/** A shape for each status, so that statuses do not depend on color. */
const shapes: Readonly<Record<string, [shape: string, kind: string]>> = {
  RUNNING: ["◐", "busy"],
  SUCCEEDED: ["●", "good"],
  CANCELED: ["○", "idle"],
};

export function RunState({ run: { status } }: { run: ScheduleRun }) {
  const [shape, kind] = shapes[status] ?? ["▲", "bad"];
  return (
    <span class={`state ${kind}`} data-run={status}>
      <span aria-hidden="true">{shape}</span> {labels.states[status] ?? status}
    </span>
  );
}

/** In seconds; undefined while it runs. */
export function secondsOf({ startedAt, endedAt }: ScheduleRun): string | undefined {
  if (startedAt === undefined || endedAt === undefined) return undefined;
  return ((timestampDate(endedAt).getTime() - timestampDate(startedAt).getTime()) / 1000).toFixed(1);
}
