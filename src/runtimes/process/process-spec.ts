import { appExpander, prepareProcess } from "../app-environment.ts";
import { hasOwnTerminal, type RestartPolicy } from "../../packages/manifest/manifest.ts";
import { healthTiming, portHealth } from "../port-health.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { HealthSpec, RestartSpec, SupervisorSpec } from "./supervisor-types.ts";

/** The app's part of the supervisor's specification; the runtime sets the rest. */
export type ProcessSpec = Omit<
  SupervisorSpec,
  "version" | "svcVersion" | "appId" | "runId" | "logDir" | "cgroup" | "settleMs"
>;

const logFileBytes = 10 * 1024 * 1024;
const logFileCount = 5;

/** Converts the manifest to a supervisor's specification. */
export function processSpec(app: RunnableApp, baseEnv: Readonly<Record<string, string>>): ProcessSpec {
  const { argv, env, cwd } = prepareProcess(app);
  const { stop, restart, limits } = app.manifest;
  return {
    argv: [...argv],
    env: { ...baseEnv, ...env },
    cwd,
    logMaxBytes: logFileBytes,
    logMaxFiles: logFileCount,
    stop,
    restart: restartSpec(restart),
    health: healthSpec(app),
    limits,
    ...(hasOwnTerminal(app.manifest) && { terminal: true }),
  };
}

/** Converts the manifest's restart policy. */
export function restartSpec({ policy, resetAfterMs, ...manifest }: RestartPolicy): RestartSpec {
  const { delayMs: backoffMs, maxDelayMs: maxBackoffMs, maxAttempts: maxRestarts } = manifest;
  return { policy, backoffMs, maxBackoffMs, maxRestarts, resetAfterMs };
}

/** Null without a health check, or if no setting assigns a number to the probe's port. */
function healthSpec(app: RunnableApp): HealthSpec | null {
  const { health } = app.manifest;
  if (health?.probe.kind !== "exec") return portHealth(app) ?? null;
  return { exec: { argv: health.probe.argv.map(appExpander(app)) }, ...healthTiming(health) };
}
