/** Resource usage of the node and its apps over time. */
import { useSignal } from "@preact/signals";
import { timestampDate, timestampFromMs, type Timestamp } from "@bufbuild/protobuf/wkt";
import { useEffect, useId } from "preact/hooks";
import type { AppStats } from "../../../gen/svc/v1/app_pb.ts";
import type { SystemMetrics } from "../../../gen/svc/v1/monitor_pb.ts";
import { describeError, type Api } from "../api.ts";
import { Chart, type ChartData } from "../parts/chart.tsx";
import { Failure } from "../parts/failure.tsx";
import { texts } from "../texts.ts";
import { formatBytes, formatPercent, formatRate } from "../units.ts";

const { charts } = texts;

/** About one sample per pixel of a chart. */
const spans = {
  hour: { secs: 3_600, step: 10, everyMs: 10_000 },
  day: { secs: 86_400, step: 240, everyMs: 60_000 },
  month: { secs: 2_592_000, step: 7_200, everyMs: 600_000 },
} as const;
type Span = keyof typeof spans;

interface Read {
  readonly times: readonly number[];
  readonly charts: readonly ChartData[];
  readonly from: number;
  readonly to: number;
}

interface HistoryQuery {
  readonly since: Timestamp;
  readonly step: number;
  readonly limit: number;
}

export function HostHistory({ api }: { api: Api }) {
  const read = async (request: HistoryQuery, signal: AbortSignal) => {
    const { samples } = await api.monitor.getMetricsHistory(request, { signal });
    return { times: samples.map(timeOf), charts: hostCharts(samples) };
  };
  return <History read={read} title={charts.host} of="" />;
}

export function AppHistory({ api, id }: { api: Api; id: string }) {
  const read = async (request: HistoryQuery, signal: AbortSignal) => {
    const { samples } = await api.apps.getAppStatsHistory({ id, ...request }, { signal });
    return { times: samples.map(timeOf), charts: appCharts(samples) };
  };
  return <History read={read} title={charts.app} of={id} />;
}

interface HistoryProps {
  readonly title: string;
  readonly of: string;
  readonly read: (request: HistoryQuery, signal: AbortSignal) => Promise<Pick<Read, "times" | "charts">>;
}

function History({ title, of, read }: HistoryProps) {
  const id = useId();
  const span = useSignal<Span>("hour");
  const found = useSignal<Read | undefined>(undefined);
  const failure = useSignal("");
  useEffect(() => {
    const over = new AbortController();
    const { secs, step, everyMs } = spans[span.value];
    const load = async (): Promise<void> => {
      if (document.hidden) return;
      const to = Date.now() / 1_000;
      try {
        const request = { since: timestampFromMs((to - secs) * 1_000), step, limit: 1_000 };
        found.value = { ...(await read(request, over.signal)), from: to - secs, to };
        failure.value = "";
      } catch (error) {
        if (!over.signal.aborted) failure.value = describeError(error);
      }
    };
    void load();
    const timer = setInterval(() => void load(), everyMs);
    return () => {
      clearInterval(timer);
      over.abort();
    };
  }, [of, span.value]);
  const shown = found.value;
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <fieldset class="row spans">
        <legend>{charts.span}</legend>
        {(["hour", "day", "month"] as const).map((each) => (
          <label key={each}>
            <input
              type="radio"
              name={`${id}-span`}
              checked={span.value === each}
              onChange={() => (span.value = each)}
            />
            {charts[each]}
          </label>
        ))}
      </fieldset>
      <Failure message={failure.value} />
      {shown === undefined ? (
        <p>{texts.loading}</p>
      ) : (
        <div class="charts">
          {shown.charts.map((chart) => (
            <Chart key={chart.label} {...chart} times={shown.times} from={shown.from} to={shown.to} />
          ))}
        </div>
      )}
    </section>
  );
}

function timeOf({ sampledAt }: { sampledAt?: Timestamp | undefined }): number {
  return sampledAt === undefined ? 0 : timestampDate(sampledAt).getTime() / 1_000;
}

function hostCharts(samples: readonly SystemMetrics[]): ChartData[] {
  const line = (label: string, value: (of: SystemMetrics) => number) => ({
    label,
    values: samples.map(value),
  });
  return [
    {
      ...{ label: charts.processor, format: formatPercent, least: 100 },
      lines: [line(charts.used, ({ cpuPercent }) => cpuPercent)],
    },
    {
      ...{
        label: charts.memory,
        format: formatBytes,
        isBytes: true,
        least: Number(samples.at(-1)?.memoryTotalBytes ?? 1),
      },
      lines: [line(charts.used, (of) => Number(of.memoryTotalBytes - of.memoryAvailableBytes))],
    },
    {
      ...{ label: charts.disks, format: formatRate, isBytes: true, least: 1_024 },
      lines: [
        line(charts.read, ({ disks }) => sumOf(disks, ({ readPerSec }) => readPerSec)),
        line(charts.written, ({ disks }) => sumOf(disks, ({ writtenPerSec }) => writtenPerSec)),
      ],
    },
    {
      ...{ label: charts.network, format: formatRate, isBytes: true, least: 1_024 },
      lines: [
        line(charts.received, ({ interfaces }) => sumOf(interfaces, ({ receivedPerSec }) => receivedPerSec)),
        line(charts.sent, ({ interfaces }) => sumOf(interfaces, ({ sentPerSec }) => sentPerSec)),
      ],
    },
  ];
}

function appCharts(samples: readonly AppStats[]): ChartData[] {
  return [
    {
      ...{ label: charts.processor, format: formatPercent, least: 10 },
      lines: [{ label: charts.used, values: samples.map(({ cpuPercent }) => cpuPercent ?? null) }],
    },
    {
      ...{ label: charts.memory, format: formatBytes, isBytes: true, least: 2 ** 20 },
      lines: [
        {
          label: charts.used,
          values: samples.map(({ memoryBytes }) => (memoryBytes === undefined ? null : Number(memoryBytes))),
        },
      ],
    },
  ];
}

function sumOf<T>(of: readonly T[], value: (of: T) => number | undefined): number {
  return of.reduce((sum, each) => sum + (value(each) ?? 0), 0);
}
