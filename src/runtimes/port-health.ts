/** Health checks that connect to a port of the app. */
import type { HealthCheck } from "../packages/manifest/manifest.ts";
import { resolvePorts } from "../packages/settings/settings.ts";
import { appExpander } from "./app-environment.ts";
import type { HealthSpec } from "./process/supervisor-types.ts";
import type { RunnableApp } from "./runnable-app.ts";

/** `undefined` without a health check, for a command, or if no setting assigns a number to the port. */
export function portHealth(app: RunnableApp): HealthSpec | undefined {
  const { health } = app.manifest;
  if (health === undefined || health.probe.kind === "exec") return undefined;
  const { probe } = health;
  const port = resolvePorts(app.manifest, app.settings).find(({ name }) => name === probe.port)?.port;
  if (port === undefined) return undefined;
  return probe.kind === "tcp"
    ? { tcp: { port }, ...healthTiming(health) }
    : { http: { port, path: appExpander(app)(probe.path) }, ...healthTiming(health) };
}

export function healthTiming({
  intervalMs,
  timeoutMs,
  retries,
  startPeriodMs,
}: HealthCheck): Pick<HealthSpec, "intervalMs" | "timeoutMs" | "retries" | "startPeriodMs"> {
  return { intervalMs, timeoutMs, retries, startPeriodMs };
}
