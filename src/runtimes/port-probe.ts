/** Health of an app with published ports, asked from the host as its users would. */
import { HealthCheck } from "./process/health-check.mjs";
import type { HealthSpec } from "./process/supervisor-types.ts";
import type { RuntimeStatus } from "./runtime.ts";

export class PortProbe implements Disposable {
  /** The start of the container that it watches, unix milliseconds. */
  readonly startedAtMs: number | undefined;
  #health: RuntimeStatus["health"] = "starting";
  #reason: string | undefined;
  readonly #check: HealthCheck;

  constructor(spec: HealthSpec, startedAtMs: number | undefined, onChange: () => void) {
    this.startedAtMs = startedAtMs;
    this.#check = new HealthCheck({ cwd: "/", env: {}, runId: "" }, spec, (health, reason) => {
      this.#health = health;
      this.#reason = reason;
      onChange();
    });
  }

  get health(): RuntimeStatus["health"] {
    return this.#health;
  }

  /** What was wrong when it was asked last; `undefined` when nothing was. */
  get reason(): string | undefined {
    return this.#reason;
  }

  [Symbol.dispose](): void {
    this.#check.stop();
  }
}

/** The probe of what runs of an app now: the one that there is, one of a new start, or none. */
export function followPort(
  probe: PortProbe | undefined,
  { state, startedAtMs }: RuntimeStatus,
  { specOf, onChange }: { specOf: () => HealthSpec | undefined; onChange: () => void },
): PortProbe | undefined {
  const isRunning = state === "RUNNING";
  if (isRunning && probe !== undefined && probe.startedAtMs === startedAtMs) return probe;
  probe?.[Symbol.dispose]();
  const spec = isRunning ? specOf() : undefined;
  return spec && new PortProbe(spec, startedAtMs, onChange);
}
