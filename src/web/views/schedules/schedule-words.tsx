import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Schedule, ScheduleAction, ScheduleRun } from "../../../../gen/svc/v1/schedule_pb.ts";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { scheduleTexts as says } from "../../texts/schedules.ts";

/** What a schedule does, in a few words. */
export function Does({ action }: { action: ScheduleAction | undefined }) {
  if (action === undefined) return null;
  const { type, app, command, url, method } = action;
  const what = command ?? (url === undefined ? (app ?? "") : `${method ?? "GET"} ${url}`);
  return (
    <>
      {says.does[type] ?? type} <Text of={what} />
    </>
  );
}

export function NextRun({
  schedule: { enabled, disabledReason, nextRunUnix, waiting },
}: {
  schedule: Schedule;
}) {
  if (disabledReason !== "") return <Text of={disabledReason} />;
  if (enabled === false) return <>{says.off}</>;
  if (waiting !== undefined) return <>{says.waiting[waiting.reason] ?? waiting.reason}</>;
  if (nextRunUnix === undefined) return <>{says.noNext}</>;
  return <When at={new Date(Number(nextRunUnix) * 1000)} />;
}

/** A shape for each kind of end, so that none depends on its colour. */
const shapes: Readonly<Record<string, [shape: string, kind: string]>> = {
  RUNNING: ["◐", "busy"],
  SUCCEEDED: ["●", "good"],
  CANCELED: ["○", "idle"],
};

export function RunState({ run: { status } }: { run: ScheduleRun }) {
  const [shape, kind] = shapes[status] ?? ["▲", "bad"];
  return (
    <span class={`state ${kind}`} data-run={status}>
      <span aria-hidden="true">{shape}</span> {says.states[status] ?? status}
    </span>
  );
}

/** In seconds; undefined while it runs. */
export function secondsOf({ startedAt, endedAt }: ScheduleRun): string | undefined {
  if (startedAt === undefined || endedAt === undefined) return undefined;
  return ((timestampDate(endedAt).getTime() - timestampDate(startedAt).getTime()) / 1000).toFixed(1);
}
