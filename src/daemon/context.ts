/** Builds every service of the daemon once, for the daemon itself and for a CLI that works in-process. */
import type { AppUpdates } from "../apps/changes/app-updates.ts";
import type { BackgroundWork } from "../apps/lifecycle/background-work.ts";
import type { AppHistory } from "../apps/records/app-history.ts";
import type { ConsoleTokens } from "../access/tokens/console-tokens.ts";
import type { TokenAuthority } from "../access/tokens/token-authority.ts";
import type { Backups } from "../backups/backups.ts";
import type { HostMetrics } from "../host/metrics/host-metrics.ts";
import type { Alerts } from "../observability/alerts/alerts.ts";
import type { Scheduler } from "../scheduler/scheduler.ts";
import type { HealthState } from "../server/rpc/health.ts";
import type { Pipeline } from "../server/rpc/pipeline.ts";
import type { UserContext } from "../server/rpc/user-context.ts";
import type { ConfigReload } from "./config-reload.ts";
import type { ContainerEngine } from "./container-engine.ts";
import type { ContextOptions } from "./context-options.ts";
import { createAlerts } from "./modules/alerts.ts";
import { createApi } from "./modules/api.ts";
import { createInstalledApps } from "./modules/apps.ts";
import { createHost } from "./modules/host.ts";
import { createObservability } from "./modules/observability.ts";
import { createPackages } from "./modules/packages.ts";
import { createPlatform } from "./modules/platform.ts";
import { createConfigReload } from "./modules/reload.ts";
import { createRuntimes } from "./modules/runtimes.ts";
import { createScheduling } from "./modules/scheduling.ts";
import type { NodeEvents } from "./node-events.ts";

export interface DaemonContext extends AsyncDisposable {
  readonly pipeline: Pipeline;
  readonly health: HealthState;
  readonly backgroundWork: BackgroundWork;
  readonly backups: Backups;
  /** The daemon starts it; a command does not. */
  readonly scheduler: Scheduler;
  /** The daemon starts it, to take samples. */
  readonly hostMetrics: HostMetrics;
  /** The daemon starts it, to take samples. */
  readonly appHistory: AppHistory;
  /** The daemon starts it, to check for updates once a day. */
  readonly updates: AppUpdates;
  readonly alerts: Alerts;
  readonly configReload: ConfigReload;
  readonly unlistedImages: ContainerEngine["unlistedImages"];
  /** The daemon starts it, because clients may follow. */
  readonly events: NodeEvents;
  /** Open in a daemon; a command must open it before it can recognize tokens. */
  readonly tokens: TokenAuthority;
  readonly consoleTokens: ConsoleTokens<UserContext>;
}

export async function createContext(options: ContextOptions): Promise<DaemonContext> {
  const { storeAhead } = options;
  if (storeAhead === undefined) return buildContext(options);
  try {
    return await buildContext(options);
  } catch (error) {
    if ((await storeAhead.isSound) === true) throw error;
    // Nothing was written yet, so the store can be repaired first.
    return buildContext({ ...options, storeAhead: undefined });
  }
}

/** @throws Error if the store turns out to be damaged */
async function buildContext(options: ContextOptions): Promise<DaemonContext> {
  await using resources = new AsyncDisposableStack();
  const platform = await createPlatform(options, resources);
  const packages = createPackages(platform, resources);
  const runtimes = await createRuntimes(platform, packages, resources);
  const installed = createInstalledApps(platform, packages, runtimes, resources);
  const observability = createObservability(platform, runtimes, installed, resources);
  const host = createHost(platform, runtimes, installed, resources);
  const scheduling = createScheduling(platform, packages, installed, observability, host, resources);
  const alerts = createAlerts(platform, installed, observability, scheduling, resources);
  const configReload = createConfigReload(platform, packages, installed, alerts);
  const { operations, ...api } = createApi(
    { platform, packages, runtimes, installed, observability, host, scheduling, alerts, configReload },
    resources,
  );
  if (platform.isDaemon) await api.tokens.open();
  const { storeAhead } = options;
  // A store that was restored from a copy differs from the one that was inspected.
  if (storeAhead !== undefined && platform.store.restoration === undefined) {
    // Usually the first request: prepare its response while the check of the store runs.
    api.pipeline.methodAt("/svc.v1.DaemonService/GetStatus");
    await installed.counters.byState();
    if ((await storeAhead.isSound) !== true) throw new Error("the database is not sound");
  }
  host.stages.start();
  await operations.start();
  installed.backgroundWork.start();
  const { backgroundWork, updates } = installed;
  const { backups, scheduler } = scheduling;
  const owned = resources.move();
  return {
    ...{ ...api, ...observability, backgroundWork, updates, backups, scheduler, alerts, configReload },
    unlistedImages: () => runtimes.containers.unlistedImages(),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
