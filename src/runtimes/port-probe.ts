/** Health checks, from the host, of apps without a supervisor of svc. */
import { HealthCheck } from "./process/health-check.mjs";
import type { HealthSpec, HealthState } from "./process/supervisor-types.ts";
import type { RuntimeStatus } from "./runtime-status.ts";

/** Minimum interval, because the daemon itself probes all apps. */
const leastIntervalMs = 1_000;

export interface PortWatch {
  specOf: () => HealthSpec | undefined;
  onChange: () => void;
  /** Why the listener at a port is not the app; without it, any listener counts as the app. */
  explainPortConflict?: (port: number) => Promise<string | undefined>;
  /** Address to connect to; `undefined` if the app does not publish the port. Without it: the address of the spec. */
  hostOf?: (port: number) => string | undefined;
}

export class PortProbe implements Disposable {
  /** When the watched process started, unix milliseconds. */
  readonly startedAtMs: number | undefined;
  #health: RuntimeStatus["health"] = "starting";
  #reason: string | undefined;
  readonly #check: HealthCheck;

  constructor(
    spec: HealthSpec,
    startedAtMs: number | undefined,
    { onChange, explainPortConflict, hostOf }: Omit<PortWatch, "specOf">,
  ) {
    this.startedAtMs = startedAtMs;
    const became = (health: HealthState, reason: string | undefined): void => {
      this.#health = health;
      this.#reason = reason;
      onChange();
    };
    const seldom = { ...spec, intervalMs: Math.max(spec.intervalMs, leastIntervalMs) };
    const listener = { explainPortConflict, hostOf };
    this.#check = new HealthCheck({ cwd: "/", env: {}, runId: "" }, seldom, became, listener);
  }

  get health(): RuntimeStatus["health"] {
    return this.#health;
  }

  /** Why the last check failed; `undefined` if it passed. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** While the app is frozen, its health stays unchanged. */
  hold(isHeld: boolean): void {
    if (isHeld) this.#check.hold();
    else this.#check.release();
  }

  [Symbol.dispose](): void {
    this.#check.stop();
  }
}

/** Keeps the probe of the running process, replaces it after a restart, and ends it when the app stops. */
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
