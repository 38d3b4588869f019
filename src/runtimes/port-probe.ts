/** Health of an app with published ports, asked from the host as its users would. */
import { resolvePorts } from "../packages/settings.ts";
import { HealthCheck } from "./process/health-check.mjs";
import type { HealthSpec } from "./process/supervisor-types.ts";
import type { RunnableApp, RuntimeStatus } from "./runtime.ts";

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

/** What to ask of the app's port; `undefined` when the manifest asks for a command inside, for nothing, or for a port without a number. */
export function portHealthSpec({ manifest, settings }: RunnableApp): HealthSpec | undefined {
  const { health } = manifest;
  if (health === undefined || health.probe.kind === "exec") return undefined;
  const { probe, startPeriodMs, intervalMs, timeoutMs, retries } = health;
  const port = resolvePorts(manifest, settings).find(({ name }) => name === probe.port)?.port;
  if (port === undefined) return undefined;
  const timing = { startPeriodMs, intervalMs, timeoutMs, retries };
  return probe.kind === "tcp"
    ? { tcp: { port }, ...timing }
    : { http: { port, path: probe.path }, ...timing };
}
