/** Health of an app that no supervisor of svc's watches, asked from the host as its users would. */
import { HealthCheck } from "./process/health-check.mjs";
import type { HealthSpec, HealthState } from "./process/supervisor-types.ts";
import type { RuntimeStatus } from "./runtime.ts";

/** It is the daemon itself that asks, for all apps of everybody. */
const leastIntervalMs = 1_000;

export interface PortWatch {
  specOf: () => HealthSpec | undefined;
  onChange: () => void;
  /** Why what answers at a port is not the app; without it whoever answers is taken for the app. */
  whyForeign?: (port: number) => Promise<string | undefined>;
}

export class PortProbe implements Disposable {
  /** The start of what it watches, unix milliseconds. */
  readonly startedAtMs: number | undefined;
  #health: RuntimeStatus["health"] = "starting";
  #reason: string | undefined;
  readonly #check: HealthCheck;

  constructor(
    spec: HealthSpec,
    startedAtMs: number | undefined,
    { onChange, whyForeign }: Pick<PortWatch, "onChange" | "whyForeign">,
  ) {
    this.startedAtMs = startedAtMs;
    const became = (health: HealthState, reason: string | undefined): void => {
      this.#health = health;
      this.#reason = reason;
      onChange();
    };
    const seldom = { ...spec, intervalMs: Math.max(spec.intervalMs, leastIntervalMs) };
    this.#check = new HealthCheck({ cwd: "/", env: {}, runId: "" }, seldom, became, whyForeign);
  }

  get health(): RuntimeStatus["health"] {
    return this.#health;
  }

  /** What was wrong when it was asked last; `undefined` when nothing was. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** While what it watches stands still it stays as healthy as it was. */
  hold(isHeld: boolean): void {
    if (isHeld) this.#check.hold();
    else this.#check.release();
  }

  [Symbol.dispose](): void {
    this.#check.stop();
  }
}

/** The probe of what runs of an app now: the one that there is, one of a new start, or none. */
export function followPort(
  probe: PortProbe | undefined,
  { state, startedAtMs }: RuntimeStatus,
  watch: PortWatch,
): PortProbe | undefined {
  const isRunning = state === "RUNNING";
  if (isRunning && probe !== undefined && probe.startedAtMs === startedAtMs) return probe;
  probe?.[Symbol.dispose]();
  const spec = isRunning ? watch.specOf() : undefined;
  return spec && new PortProbe(spec, startedAtMs, watch);
}
