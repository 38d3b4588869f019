import type { Client } from "@connectrpc/connect";
import type { Schedule, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useLive } from "../../live.ts";
import type { NodeView } from "../../node-view.ts";
import { Failure } from "../../parts/failure.tsx";
import { Text } from "../../parts/text.tsx";
import { clockText } from "../../parts/when.tsx";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { scheduleTexts as says } from "../../texts/schedules.ts";

const dayMs = 86_400_000;
const days = 7;
/** The daemon is asked once for each; the soonest are shown. */
const mostSchedules = 50;
const askedAtOnce = 4;
const mostFirings = 100;

interface Props {
  client: Client<typeof ScheduleService>;
  node: NodeView;
  schedules: readonly Schedule[];
}

/** When one schedule fires in the days to come. */
interface Firings {
  readonly schedule: Schedule;
  readonly times: readonly Date[];
  /** There are more than were asked for. */
  readonly isCut: boolean;
}

/** What is going to run within a week, day by day, as the reader's own clock shows it. */
export function Week({ client, node, schedules }: Props) {
  const due = schedules
    .filter(({ enabled, nextRunUnix }) => enabled !== false && nextRunUnix !== undefined)
    .toSorted((one, other) => Number((one.nextRunUnix ?? 0n) - (other.nextRunUnix ?? 0n)));
  const shown = due.slice(0, mostSchedules);
  const key = shown.map(({ owner, id, revision }) => `${String(owner)} ${id} ${revision}`).join(" ");
  const today = new Date().setHours(0, 0, 0, 0);
  const { value, failure } = useLive(node, [], (signal) => readFirings(client, shown, signal), [
    client,
    key,
    today,
  ]);
  return (
    <section aria-labelledby="week">
      <h2 id="week">{says.week}</h2>
      <Failure says={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {due.length > shown.length && <p class="quiet">{says.weekCut(shown.length, due.length)}</p>}
      {value !== undefined && (
        <ol class="week">
          {Array.from(
            { length: days },
            (_, at) => new Date(new Date(today).setDate(new Date(today).getDate() + at)),
          ).map((day) => (
            <Day key={day.getTime()} day={day} firings={value} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Day({ day, firings }: { day: Date; firings: readonly Firings[] }) {
  const end = new Date(day).setDate(day.getDate() + 1);
  const entries = firings.flatMap(({ schedule, times, isCut }) => {
    const within = times.filter((time) => time >= day && time.getTime() < end);
    const last = times.at(-1)?.getTime() ?? 0;
    // Of what fires often only its beginning is known.
    const isOpen = isCut && last < end;
    return within.length === 0 && !(isOpen && last < day.getTime()) ? [] : [{ schedule, within, isOpen }];
  });
  const title = day.toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" });
  return (
    <li class="card">
      <h3>{title}</h3>
      {entries.length === 0 && <p class="quiet">{says.weekNothing}</p>}
      <ul>
        {entries
          .toSorted((one, other) => Number(one.within[0] ?? 0) - Number(other.within[0] ?? 0))
          .map(({ schedule: { owner, id }, within, isOpen }) => (
            <li key={`${String(owner)} ${id}`}>
              <a href={pathTo("schedules", String(owner), id)}>
                <Text of={id} />
              </a>{" "}
              <span class="quiet times">{timesText(within, isOpen)}</span>
            </li>
          ))}
      </ul>
    </li>
  );
}

function timesText(times: readonly Date[], isOpen: boolean): string {
  if (isOpen) return says.weekOften;
  const [first] = times;
  if (first === undefined || times.length <= 3) return times.map(clockText).join(", ");
  return says.weekTimes(times.length, clockText(first));
}

async function readFirings(
  client: Props["client"],
  schedules: readonly Schedule[],
  signal: AbortSignal,
): Promise<Firings[]> {
  const untilMs = Date.now() + days * dayMs;
  const read = async (schedule: Schedule): Promise<Firings> => {
    const { trigger, utc, timeZone } = schedule;
    const { firings } = await client.previewSchedule(
      { trigger, utc, timeZone, count: mostFirings },
      { signal },
    );
    const times = firings.map(({ unix }) => new Date(Number(unix) * 1000));
    const within = times.filter((time) => time.getTime() < untilMs);
    return { schedule, times: within, isCut: within.length === mostFirings };
  };
  const found: Firings[] = [];
  for (let at = 0; at < schedules.length; at += askedAtOnce)
    found.push(...(await Promise.all(schedules.slice(at, at + askedAtOnce).map(read))));
  return found;
}
