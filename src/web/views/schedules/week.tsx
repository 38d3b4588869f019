import type { Client } from "@connectrpc/connect";
import type { Schedule, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useLive } from "../../live.ts";
import type { NodeView } from "../../node-view.ts";
import { Failure } from "../../parts/failure.tsx";
import { Text } from "../../parts/text.tsx";
import { clockText } from "../../parts/when.tsx";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { scheduleTexts as labels } from "../../texts/schedules.ts";

const days = 7;
/** Only the soonest are shown, since the page reads the firings of each. */
const maxSchedules = 50;
const maxParallelReads = 4;
/** The contract's limit. */
const maxFirings = 100;
/** A day with more firings shows their count and the first time. */
const maxTimes = 3;

interface Props {
  client: Client<typeof ScheduleService>;
  node: NodeView;
  schedules: readonly Schedule[];
}

interface DayFirings {
  readonly count: number;
  /** The first {@link maxTimes}. */
  readonly times: readonly Date[];
}

interface Firings {
  readonly schedule: Schedule;
  /** In the order of the days. */
  readonly byDay: readonly DayFirings[];
}

/** The runs of the next seven days, by day in the reader's local time. */
export function Week({ client, node, schedules }: Props) {
  const due = schedules
    .filter(({ enabled, nextRunUnix }) => enabled !== false && nextRunUnix !== undefined)
    .toSorted((one, other) => Number((one.nextRunUnix ?? 0n) - (other.nextRunUnix ?? 0n)));
  const shown = due.slice(0, maxSchedules);
  const key = shown.map(({ owner, id, revision }) => `${String(owner)} ${id} ${revision}`).join(" ");
  const today = new Date().setHours(0, 0, 0, 0);
  // Local days, which have 23 or 25 hours when the clock changes.
  const starts = Array.from({ length: days + 1 }, (_, at) =>
    new Date(today).setDate(new Date(today).getDate() + at),
  );
  const { value, failure } = useLive(node, [], (signal) => readFirings(client, shown, starts, signal), [
    client,
    key,
    today,
  ]);
  return (
    <section aria-labelledby="week">
      <h2 id="week">{labels.week}</h2>
      <Failure message={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {due.length > shown.length && <p class="quiet">{labels.weekCut(shown.length, due.length)}</p>}
      {value !== undefined && (
        <ol class="week">
          {starts.slice(0, days).map((start, at) => (
            <Day key={start} start={start} at={at} firings={value} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Day({ start, at, firings }: { start: number; at: number; firings: readonly Firings[] }) {
  const entries = firings.flatMap(({ schedule, byDay }) => {
    const day = byDay[at];
    const [first] = day?.times ?? [];
    return day === undefined || first === undefined ? [] : [{ schedule, day, first }];
  });
  const title = new Date(start).toLocaleDateString(undefined, {
    weekday: "short",
    day: "numeric",
    month: "short",
  });
  return (
    <li class="card">
      <h3>{title}</h3>
      {entries.length === 0 && <p class="quiet">{labels.weekNothing}</p>}
      <ul>
        {entries
          .toSorted((one, other) => Number(one.first) - Number(other.first))
          .map(({ schedule: { owner, id }, day, first }) => (
            <li key={`${String(owner)} ${id}`}>
              <a href={pathTo("schedules", String(owner), id)}>
                <Text of={id} />
              </a>{" "}
              <span class="quiet times">
                {day.count > maxTimes
                  ? labels.weekTimes(day.count, clockText(first))
                  : day.times.map(clockText).join(", ")}
              </span>
            </li>
          ))}
      </ul>
    </li>
  );
}

async function readFirings(
  client: Props["client"],
  schedules: readonly Schedule[],
  starts: readonly number[],
  signal: AbortSignal,
): Promise<Firings[]> {
  const found: Firings[] = [];
  for (let at = 0; at < schedules.length; at += maxParallelReads)
    found.push(
      ...(await Promise.all(
        schedules.slice(at, at + maxParallelReads).map(async (schedule) => ({
          schedule,
          byDay: await readDays(client, schedule, starts, signal),
        })),
      )),
    );
  return found;
}

/** Reads one schedule's firings page by page until the end of the last day. */
async function readDays(
  client: Props["client"],
  { trigger, utc, timeZone }: Schedule,
  starts: readonly number[],
  signal: AbortSignal,
): Promise<DayFirings[]> {
  const found = Array.from({ length: days }, () => ({ count: 0, times: new Array<Date>() }));
  let afterUnix: bigint | undefined;
  for (;;) {
    const { firings } = await client.previewSchedule(
      { trigger, utc, timeZone, count: maxFirings, ...(afterUnix !== undefined && { afterUnix }) },
      { signal },
    );
    for (const { unix } of firings) {
      const time = new Date(Number(unix) * 1000);
      const day = found[starts.findLastIndex((start) => start <= time.getTime())];
      if (day === undefined) return found;
      day.count += 1;
      if (day.times.length < maxTimes) day.times.push(time);
    }
    if (firings.length < maxFirings) return found;
    afterUnix = firings.at(-1)?.unix;
  }
}
