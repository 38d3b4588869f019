/** The health check of an app that is asked at one of its ports. */
import type { HealthCheck } from "../packages/manifest.ts";
import { resolvePorts } from "../packages/settings.ts";
import { appExpander } from "./app-environment.ts";
import type { HealthSpec } from "./process/supervisor-types.ts";
import { probedHost } from "./published-ports.ts";
import type { RunnableApp } from "./runtime.ts";

/**
 * `undefined` when the manifest asks for a command, for nothing, or at a port that no setting gives a number to.
 * @param published where the engine publishes them, for containers
 */
export function portHealth(
  app: RunnableApp,
  published: readonly { readonly name: string; readonly address: string }[] = [],
): HealthSpec | undefined {
  const { health } = app.manifest;
  if (health === undefined || health.probe.kind === "exec") return undefined;
  const { probe } = health;
  const port = resolvePorts(app.manifest, app.settings).find(({ name }) => name === probe.port)?.port;
  if (port === undefined) return undefined;
  const host = probedHost(published.find(({ name }) => name === probe.port)?.address ?? "");
  const target = { port, ...(host !== undefined && { host }) };
  return probe.kind === "tcp"
    ? { tcp: target, ...healthTiming(health) }
    : { http: { ...target, path: appExpander(app)(probe.path) }, ...healthTiming(health) };
}

export function healthTiming({
  intervalMs,
  timeoutMs,
  retries,
  startPeriodMs,
}: HealthCheck): Pick<HealthSpec, "intervalMs" | "timeoutMs" | "retries" | "startPeriodMs"> {
  return { intervalMs, timeoutMs, retries, startPeriodMs };
}
