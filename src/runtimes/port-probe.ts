/** Health of an app with published ports, asked from the host as its users would. */
import { HealthCheck } from "./process/health-check.mjs";
import type { HealthSpec } from "./process/supervisor-types.ts";
import type { RuntimeStatus } from "./runtime.ts";

export class PortProbe implements Disposable {
  /** The start of the container that it watches, unix milliseconds. */
  readonly startedAtMs: number | undefined;
  #health: RuntimeStatus["health"] = "starting";
  readonly #check: HealthCheck;

  constructor(spec: HealthSpec, startedAtMs: number | undefined, onChange: () => void) {
    this.startedAtMs = startedAtMs;
    this.#check = new HealthCheck({ cwd: "/", env: {}, runId: "" }, spec, (health) => {
      this.#health = health;
      onChange();
    });
  }

  get health(): RuntimeStatus["health"] {
    return this.#health;
  }

  [Symbol.dispose](): void {
    this.#check.stop();
  }
}
