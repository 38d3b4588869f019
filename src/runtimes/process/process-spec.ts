import { appExpander, prepareProcess } from "../app-environment.ts";
import { hasOwnTerminal, type RestartPolicy } from "../../packages/manifest.ts";
import { healthTiming, portHealth } from "../port-health.ts";
import type { RunnableApp } from "../runtime.ts";
import type { HealthSpec, RestartSpec, SupervisorSpec } from "./supervisor-types.ts";

/** What an app runs; the rest of the supervisor's specification is the runtime's own. */
export type ProcessSpec = Omit<
  SupervisorSpec,
  "version" | "svcVersion" | "appId" | "runId" | "logDir" | "cgroup" | "settleMs"
>;

const logFileBytes = 10 * 1024 * 1024;
const logFileCount = 5;

/** What the manifest says, as the supervisor needs it. */
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

/** The manifest's policy, as whoever restarts takes it. */
export function restartSpec({ policy, resetAfterMs, ...manifest }: RestartPolicy): RestartSpec {
  const { delayMs: backoffMs, maxDelayMs: maxBackoffMs, maxAttempts: maxRestarts } = manifest;
  return { policy, backoffMs, maxBackoffMs, maxRestarts, resetAfterMs };
}

/** Null when the probe names a port that no setting gives a number to: there is nothing to ask then. */
function healthSpec(app: RunnableApp): HealthSpec | null {
  const { health } = app.manifest;
  if (health?.probe.kind !== "exec") return portHealth(app) ?? null;
  return { exec: { argv: health.probe.argv.map(appExpander(app)) }, ...healthTiming(health) };
}
