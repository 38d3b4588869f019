/** Resource usage of apps over time: periodic samples of all running apps. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { AppStatsSchema } from "../../../gen/svc/v1/app_pb.ts";
import {
  SampleRing,
  type History,
  type HistoryCaller,
  type HistoryQuestion,
} from "../../lib/samples/sample-ring.ts";
import { pause, type Clock } from "../../lib/clock.ts";
import type { RuntimeUsage } from "../../runtimes/capabilities.ts";
import { statsOf } from "./app-reports.ts";
import type { Log } from "../../lib/log.ts";

export interface AppHistoryOptions {
  /** Directory of the samples; absolute. */
  dir: string;
  /** Seconds between two samples. */
  intervalSecs: number;
  /** The current usage of running apps, by ID. */
  usages: (signal: AbortSignal) => Promise<ReadonlyMap<string, RuntimeUsage>>;
  clock: Clock;
  log: Pick<Log, "warn">;
}

/** Values in a fixed order, which keeps samples of a thousand apps small on disk; null: not measured. */
const keys = [
  ...(["cpuPercent", "memoryBytes", "processes", "diskReadBytes", "diskWrittenBytes"] as const),
  ...(["networkReceivedBytes", "networkSentBytes"] as const),
];
/** Levels are averaged over longer periods; all other values are those at the end of the period. */
const levels: ReadonlySet<string> = new Set(["cpuPercent", "memoryBytes", "processes"]);

type Row = readonly (number | null)[];

export interface AppsSample {
  readonly atMs: number;
  /** Running apps, by ID. */
  readonly apps: Readonly<Record<string, Row>>;
}

/** Enough for one day in full and some weeks with one sample per five minutes for a thousand apps; for ten apps a month. */
const maxBytes = { day: 32 * 1024 * 1024, month: 64 * 1024 * 1024 };
const firstAfterMs = 1_000;

export class AppHistory implements AsyncDisposable {
  readonly #options: AppHistoryOptions;
  readonly #ring: SampleRing<AppsSample>;
  readonly #ended = new AbortController();
  #newest: AppsSample = { atMs: 0, apps: {} };
  #work: Promise<void> = Promise.resolve();

  constructor(options: AppHistoryOptions) {
    this.#options = options;
    this.#ring = new SampleRing({
      ...{ ...options, prefix: "apps-", subject: "apps", maxBytes, summarize: summarizeApps },
    });
  }

  start(): void {
    this.#work = this.#run();
  }

  /** The last sample of each app. */
  newest(): ReadonlyMap<string, RuntimeUsage> {
    return new Map(Object.entries(this.#newest.apps).map(([id, row]) => [id, usageOf(row)]));
  }

  /** @param createdAtMs when the app was created: older samples belong to an earlier app with the same ID */
  async of(
    id: string,
    question: HistoryQuestion,
    createdAtMs: number,
    asker: HistoryCaller,
  ): Promise<History<MessageInitShape<typeof AppStatsSchema>>> {
    const { samples, intervalSecs } = await this.#ring.history(question, asker);
    return {
      intervalSecs,
      samples: samples.flatMap(({ atMs, apps }) => {
        const row = atMs < createdAtMs || !Object.hasOwn(apps, id) ? undefined : apps[id];
        return row === undefined ? [] : [{ id, sampledAt: timestampFromMs(atMs), ...statsOf(usageOf(row)) }];
      }),
    };
  }

  async #run(): Promise<void> {
    const { clock, intervalSecs } = this.#options;
    const { signal } = this.#ended;
    await this.#ring.open();
    for (let delayMs = firstAfterMs; !signal.aborted; delayMs = intervalSecs * 1000) {
      await pause(clock, delayMs, signal).then(
        () => this.#ring.attempt("take", () => this.#sample()),
        () => undefined,
      );
    }
  }

  async #sample(): Promise<void> {
    const { usages, clock } = this.#options;
    const found = await usages(this.#ended.signal);
    const apps = Object.fromEntries([...found].map(([id, usage]) => [id, rowOf(usage)]));
    this.#newest = { atMs: clock.nowMs(), apps };
    // Nothing to store if no app runs.
    if (found.size > 0) await this.#ring.add(this.#newest);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    await this.#work;
    await this.#ring.save();
  }
}

function rowOf(usage: RuntimeUsage): Row {
  return keys.map((key) => usage[key] ?? null);
}

function usageOf(row: Row): RuntimeUsage {
  return Object.fromEntries(keys.flatMap((key, at) => (typeof row[at] === "number" ? [[key, row[at]]] : [])));
}

/** The time in which each app ran. */
function summarizeApps(samples: readonly AppsSample[]): AppsSample {
  const rows = new Map<string, Row[]>();
  for (const { apps } of samples)
    for (const [id, row] of Object.entries(apps)) rows.set(id, [...(rows.get(id) ?? []), row]);
  return {
    atMs: samples.at(-1)?.atMs ?? 0,
    apps: Object.fromEntries(
      [...rows].map(([id, all]) => [id, keys.map((key, at) => valueOf(key, at, all))]),
    ),
  };
}

function valueOf(key: string, at: number, rows: readonly Row[]): number | null {
  const values = rows.flatMap((row) => row[at] ?? []);
  if (values.length === 0) return null;
  if (!levels.has(key)) return values.at(-1) ?? null;
  const average = values.reduce((sum, value) => sum + value, 0) / values.length;
  return key === "cpuPercent" ? Math.round(average * 10) / 10 : Math.round(average);
}
