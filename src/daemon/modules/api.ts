/** The services of the contract, and the pipeline through which every transport calls them. */
import { ConsoleTokens } from "../../access/tokens/console-tokens.ts";
import { TokenAuthority } from "../../access/tokens/token-authority.ts";
import { Consoles } from "../../console/consoles.ts";
import type { JsonObject } from "../../lib/json.ts";
import type { Alerts } from "../../observability/alerts/alerts.ts";
import { AuditReader } from "../../observability/audit/audit-reader.ts";
import { OperationRegistry } from "../../operations/operation-registry.ts";
import { serviceCapability } from "../../runtimes/systemd/service-runtime.ts";
import { bindServices } from "../../server/handlers/services.ts";
import { StatusResponses } from "../../server/handlers/status-responses.ts";
import { JsonWriter } from "../../server/rest/json-writer.ts";
import { HealthState, bindHealth } from "../../server/rpc/health.ts";
import { createPipeline } from "../../server/rpc/pipeline.ts";
import { bindReflection } from "../../server/rpc/reflection.ts";
import type { UserContext } from "../../server/rpc/user-context.ts";
import type { ConfigReload } from "../config-reload.ts";
import type { InstalledApps } from "./apps.ts";
import type { Host } from "./host.ts";
import type { Observability } from "./observability.ts";
import type { Packages } from "./packages.ts";
import type { Platform } from "./platform.ts";
import type { Runtimes } from "./runtimes.ts";
import type { Scheduling } from "./scheduling.ts";

export interface ApiParts {
  platform: Platform;
  packages: Packages;
  runtimes: Runtimes;
  installed: InstalledApps;
  observability: Observability;
  host: Host;
  scheduling: Scheduling;
  alerts: Alerts;
  configReload: ConfigReload;
}

/** Limits that need cgroups, sorted. */
const limitNames = ["cpus", "memory"] as const;

/** Each operation keeps the request that started it in memory. */
const maxDetachedPerUser = 32;

export function createApi(parts: ApiParts, resources: AsyncDisposableStack) {
  const { platform, packages, runtimes, installed, observability, host, scheduling } = parts;
  const { config, version, selfUid, clock, now, log, store, audit, metrics, userHelpers } = platform;
  const { paths, userName, listeners, startedAtMs, pageAddress, isDaemon, fairQueue, shutdownSignal } =
    platform;
  const { updates, finder, counters, packageSearch, logs } = installed;
  const { events, hostMetrics, appHistory } = observability;
  const { sources, credentials } = packages;
  const tokens = resources.use(new TokenAuthority({ file: config.tokenFile, selfUid, store, clock, log }));
  const operations = resources.use(
    new OperationRegistry({
      ...{ store, now, log, shutdownSignal, isDaemon },
      maxRunningPerUser: Math.min(maxDetachedPerUser, config.api.limits.maxCallsPerUser),
      onStart: events.onOperationStart,
      onFinish: events.onOperationFinish,
    }),
  );
  installed.recovery.onRecovered(operations.onRecovered);
  const jsonWriter = new JsonWriter();
  const consoleTokens = new ConsoleTokens<UserContext>(clock);
  const { cgroups, containers } = runtimes;
  const facts = {
    ...{ version, mode: config.mode, startedAtMs, userName, listeners },
    ...{ configFile: config.file, storeDirectory: config.store.dir, log: platform.logDestination },
    engine: containers.probe,
    enforcedLimits: limitNames.filter((name) => cgroups?.enforces[name] === true),
  };
  const status = new StatusResponses(facts);
  const services = bindServices({
    ...{
      finder,
      counters,
      packageSearch,
      updates,
      sources,
      credentials,
      tokens,
      consoleTokens,
      operations,
      hostMetrics,
      appHistory,
    },
    ...{ metrics, status, userName, pageAddress, ...host, ...scheduling },
    apps: installed,
    alerts: parts.alerts,
    configReload: parts.configReload,
    audit: new AuditReader(store),
    consoles: new Consoles({
      ...{ finder, logs, runtimes: installed.runtimes, userHelpers, paths },
      maxPerUser: config.limits.maxConsolesPerUser,
    }),
    events: events.log,
    appendAudit: (record) => audit.append(record),
    json: (schema, message) => JSON.parse(jsonWriter.message(schema, message)) as JsonObject,
  });
  const health = new HealthState(services.map(({ name }) => name));
  const healthService = bindHealth(health);
  const pipeline = createPipeline({
    services: [...services, healthService, ...bindReflection([...services, healthService])],
    log,
    audit: (record) => audit.append(record),
    observe: (call) => metrics.observeCall(call),
    limits: config.api.limits,
    streamKeepAliveMs: config.api.limits.streamKeepAliveMs,
    fairQueue,
    shutdownSignal,
  });
  metrics.watch({ callsInFlight: () => pipeline.callsInFlight });
  const hasUnits = runtimes.units.whyAbsent === undefined;
  status.announce(
    hasUnits ? [...pipeline.capabilities, serviceCapability].toSorted() : pipeline.capabilities,
  );
  return { pipeline, health, tokens, consoleTokens, operations };
}
