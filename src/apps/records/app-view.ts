/** The contract's view of an app, from its record, its operation and its runtime status. */
import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { AppSchema } from "../../../gen/svc/v1/app_pb.ts";
import type { AppOperationKind, AppState, AppStatus } from "../../../gen/svc/v1/values.ts";
import type { JsonObject } from "../../lib/json.ts";
import { hasOwnTerminal } from "../../packages/manifest/manifest.ts";
import { mergeDefaults, resolvePorts } from "../../packages/settings/settings.ts";
import type { RuntimeLimit } from "../../runtimes/capabilities.ts";
import type { AdoptedData } from "../../runtimes/runnable-app.ts";
import { isUp, waitReason, type RuntimeStatus } from "../../runtimes/runtime-status.ts";
import type { AppRecord } from "./app-record.ts";
import type { Operation } from "../lifecycle/operations.ts";
import { isReadable } from "./unreadable-app.ts";

export type AppView = MessageInitShape<typeof AppSchema>;

/** The backup state of an app. */
export interface AppBackupState {
  readonly lastBackupAtMs: number | undefined;
  /** The storages that stored it. */
  readonly storages: readonly string[];
  readonly lastVerifiedAtMs: number | undefined;
  readonly overdue: boolean;
}

export interface ViewParts {
  app: AppRecord;
  operation: Operation | undefined;
  /** The runtime's status; absent before the app is adopted. */
  status: RuntimeStatus | undefined;
  /** Absent if there is none. */
  backups: AppBackupState | undefined;
  /** When the daemon will start the app; absent if it will not. */
  dueStartAtMs: number | undefined;
  /** Absent if no newer version was found. */
  availableVersion: string | undefined;
  limits: readonly RuntimeLimit[];
  ownerName: string;
  directory: string;
}

export function viewApp(parts: ViewParts): AppView {
  const { app, operation, status, backups, dueStartAtMs, availableVersion, limits, ownerName, directory } =
    parts;
  const { manifest } = app;
  const { state, reason, waitsFor } = stateOf(app, operation, status);
  const isRunning = isUp(state);
  const exitCode = status?.exitCode ?? app.failure?.exitCode;
  const exitSignal = status?.exitSignal ?? app.failure?.signal;
  const nextRestartAtMs = isRunning ? status?.nextRestartAtMs : dueStartAtMs;
  const [healthReason, endedReason] = isRunning ? [status?.healthReason, status?.endedReason] : [];
  return {
    id: app.id,
    name: app.name,
    packageId: app.packageId,
    summary: manifest.summary,
    homepage: manifest.homepage,
    runtime: app.runtime,
    version: app.version,
    state,
    stateReason: reason,
    status: shownState(state, status?.health),
    health: isRunning ? (status?.health ?? "none") : "none",
    owner: app.ownerUid,
    ownerName,
    origin: app.origin,
    createdAt: timestampFromMs(app.createdAtMs),
    updatedAt: timestampFromMs(app.changedAtMs),
    ...(isRunning && status?.startedAtMs !== undefined && { startedAt: timestampFromMs(status.startedAtMs) }),
    ...(exitCode !== undefined && { exitCode }),
    ...(exitSignal !== undefined && { exitSignal }),
    restarts: status?.restarts ?? 0,
    ports: resolvePorts(manifest, runningSettings(app, isRunning)),
    directory,
    lastLines:
      state === "FAILED" || state === "CRASHED"
        ? [...(app.failure?.lastLines ?? status?.lastLines ?? [])]
        : [],
    limits: [...limits],
    ...(operation !== undefined && {
      operation: {
        kind: operation.kind,
        phase: operation.phase,
        startedAt: timestampFromMs(operation.startedAtMs),
        cancelable: cancelable.has(operation.kind),
      },
    }),
    enabled: app.desired === "running",
    restartRequired: isRunning && changedSettings(app).length > 0,
    ...(nextRestartAtMs !== undefined && { nextRestartAt: timestampFromMs(nextRestartAtMs) }),
    ...(healthReason !== undefined && { healthReason }),
    ...(endedReason !== undefined && { endedReason }),
    ...(waitsFor !== undefined && { waitsFor }),
    ...(backups !== undefined && { backups: viewBackups(backups) }),
    ...(app.placement !== null && { placement: { on: "swarm", ...app.placement } }),
    tasks: (status?.tasks ?? []).map(({ sinceMs, ...task }) => ({
      ...task,
      since: timestampFromMs(sinceMs),
    })),
    ...(availableVersion !== undefined && { availableVersion }),
    hasConsole: hasConsole(app, status),
    ...(app.adopted !== null && { adopted: viewAdopted(app.adopted) }),
  };
}

export function viewAdopted({ volumes, mounts, paths }: AdoptedData): AppView["adopted"] {
  const unnamed = new Set(mounts.flatMap(({ key }) => volumes[key] ?? []));
  return { volumes: Object.values(volumes).sort(), paths: [...paths], leftBehind: [...unnamed, ...paths] };
}

/** In a compose project, each service may have a terminal. */
function hasConsole({ manifest, runtime }: AppRecord, status: RuntimeStatus | undefined): boolean {
  if (manifest.console?.argv !== undefined) return true;
  return runtime === "compose" ? status?.hasTerminal === true : hasOwnTerminal(manifest);
}

function viewBackups({
  lastBackupAtMs,
  storages,
  lastVerifiedAtMs,
  overdue,
}: AppBackupState): AppView["backups"] {
  return {
    ...(lastBackupAtMs !== undefined && { lastBackupAt: timestampFromMs(lastBackupAtMs) }),
    storages: [...storages],
    ...(lastVerifiedAtMs !== undefined && { lastProvenAt: timestampFromMs(lastVerifiedAtMs) }),
    overdue,
  };
}

/** The values that the app runs with, or will run with after its next start. */
export function runningSettings({ settings, startedSettings }: AppRecord, isRunning: boolean): JsonObject {
  return isRunning && startedSettings !== null ? startedSettings : settings;
}

/** The settings whose values would change if the running app were restarted now. */
export function changedSettings({ desired, manifest, settings, startedSettings }: AppRecord): string[] {
  if (desired !== "running" || startedSettings === null) return [];
  const next = mergeDefaults(manifest, settings);
  const keys = new Set([...Object.keys(next), ...Object.keys(startedSettings)]);
  return [...keys].filter((key) => !isDeepStrictEqual(next[key], startedSettings[key]));
}

const engineWait = "the container engine";

/** The state: of the operation if there is one, else of the runtime, else the last recorded one. */
export function stateOf(
  app: AppRecord,
  operation: Operation | undefined,
  status: RuntimeStatus | undefined,
): { state: AppState; reason: string; waitsFor?: string } {
  const underway = operation === undefined ? undefined : stateDuring(operation);
  if (underway !== undefined) {
    if (operation?.detail.awaitsEngine === true)
      return { state: underway, reason: waitReason(engineWait), waitsFor: engineWait };
    if (app.runtime !== "compose" || status?.state !== underway) return { state: underway, reason: "" };
    const { reason, waitsFor } = status;
    return { state: underway, reason, ...(waitsFor !== undefined && { waitsFor }) };
  }
  // Even if parts of it run: the desired state cannot be read.
  if (!isReadable(app)) return { state: "FAILED", reason: app.stateReason };
  // An app that could not be started does not run, but its owner needs to see that it failed.
  if (app.state === "FAILED" && !isUp(status?.state)) return { state: "FAILED", reason: app.stateReason };
  if (status !== undefined && app.state !== "INSTALLING")
    return { state: status.state, reason: status.reason };
  return { state: app.state, reason: app.stateReason };
}

/** The state to show to people; see `App.status` in the contract. */
export function shownState(state: AppState, health: RuntimeStatus["health"] = "none"): AppStatus {
  if (state !== "RUNNING") return state;
  if (health === "unhealthy") return "UNHEALTHY";
  return health === "starting" ? "STARTING" : "RUNNING";
}

/** Kinds that can be canceled. A canceled start leaves the app stopped; all others are rolled back. */
const cancelable: ReadonlySet<AppOperationKind> = new Set([
  "start",
  "restart",
  "install",
  "upgrade",
  "clone",
  "backup",
  "restore",
  "repull",
  "adopt",
]);

function stateDuring(operation: Operation): AppState | undefined {
  switch (operation.kind) {
    case "install":
    case "adopt":
      return "INSTALLING";
    case "clone":
      return operation.detail.lockOnly === true ? undefined : "INSTALLING";
    case "start":
      return "STARTING";
    case "stop":
      return "STOPPING";
    case "restart":
      return operation.phase === "stop" ? "STOPPING" : "STARTING";
    case "upgrade":
      return "UPGRADING";
    case "remove":
      return "REMOVING";
    case "restore":
      return "RESTORING";
    case "repull":
      return operation.phase === "stop" ? "STOPPING" : operation.phase === "start" ? "STARTING" : undefined;
    case "settings":
    case "backup":
      return undefined;
  }
}
