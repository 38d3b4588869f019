/** Waits until a started app is up, and reports what it waits for. */
import { SvcError } from "../../errors.ts";
import type { HealthCheck } from "../../packages/manifest/manifest.ts";
import { resolvePorts } from "../../packages/settings/settings.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import type { RuntimeStatus } from "../../runtimes/runtime-status.ts";
import { explainFailedStart } from "../../runtimes/start-failed.ts";
import type { AppRecord } from "../records/app-record.ts";
import { runningSettings } from "../records/app-view.ts";
import type { WorkOptions } from "../../work/progress.ts";

const slackMs = 30_000;
/** Health checks of the engine and of compose files have their own limits, and report `unhealthy` at the end. */
const unknownCheckMs = 600_000;

/** Maximum duration of a trial: the time that the health check allows, plus 30 seconds. */
export function maxStartMs(health: HealthCheck | undefined): number {
  if (health === undefined) return slackMs;
  return health.startPeriodMs + health.retries * (health.intervalMs + health.timeoutMs) + slackMs;
}

/**
 * Resolves when the app runs and its health check, if it has one, passes.
 * @throws SvcError `start_failed` with its last lines if it exits, restarts or becomes unhealthy; `app_not_running`,
 *   `deadline_exceeded`, `canceled`
 */
export async function waitUntilUp(
  app: AppRecord,
  runtime: AppRuntime,
  { signal, onProgress }: WorkOptions,
): Promise<void> {
  const { id, manifest } = app;
  if (isWell(runtime.status(id))) return;
  const say = (): void => {
    const { healthReason } = runtime.status(id) ?? {};
    const so = healthReason === undefined ? "" : `: ${healthReason}`;
    onProgress?.({ step: "health", message: `Waiting for ${checkOf(app)}${so}` });
  };
  say();
  using _news = runtime.onChange((changedId) => {
    if (changedId === id) say();
  });
  const timeoutMs = manifest.health === undefined ? unknownCheckMs : maxStartMs(manifest.health);
  try {
    await runtime.waitHealthy(id, timeoutMs, signal);
  } catch (error) {
    throw notUp(id, error);
  }
}

function isWell(status: RuntimeStatus | undefined): boolean {
  const isHealthy = status?.health === "none" || status?.health === "healthy";
  return status?.state === "RUNNING" && isHealthy;
}

/** Rewords the runtime's message, which says that the app did not start. */
function notUp(id: string, error: unknown): unknown {
  if (!(error instanceof SvcError) || error.reason !== "start_failed") return error;
  const { payload } = error as SvcError<"start_failed">;
  const why = explainFailedStart(id, error as SvcError);
  const message = `app "${id}" did not come up: ${why === "" ? "the app was stopped" : why}`;
  return new SvcError("start_failed", message, { payload, cause: error });
}

/** `GET /healthz on port 8080`, `port 8080`, `pg_isready`, or `the health check` if the manifest does not define it. */
function checkOf(app: AppRecord): string {
  const probe = app.manifest.health?.probe;
  switch (probe?.kind) {
    case undefined:
      return "the health check";
    case "http":
      return `GET ${probe.path} on port ${portOf(app, probe.port)}`;
    case "tcp":
      return `port ${portOf(app, probe.port)}`;
    case "exec":
      return probe.argv.join(" ");
  }
}

function portOf(app: AppRecord, name: string): number | string {
  const ports = resolvePorts(app.manifest, runningSettings(app, true));
  return ports.find((port) => port.name === name)?.port ?? name;
}
