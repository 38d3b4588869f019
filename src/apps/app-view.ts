/** An app as the contract shows it: the record, what holds it, and what its runtime knows. */
import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { AppSchema } from "../../gen/svc/v1/app_pb.ts";
import type { AppOperationKind, AppState } from "../../gen/svc/v1/words.ts";
import type { JsonObject } from "../lib/json.ts";
import { mergeDefaults, resolvePorts } from "../packages/settings.ts";
import { isUp, type RuntimeLimit, type RuntimeStatus } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { Operation } from "./operations.ts";
import { isReadable } from "./unreadable-app.ts";

export type AppView = MessageInitShape<typeof AppSchema>;

/** What is known of an app's backups. */
export interface AppBackupState {
  readonly lastBackupAtMs: number | undefined;
  /** Those that took it. */
  readonly storages: readonly string[];
  readonly lastProvenAtMs: number | undefined;
  readonly overdue: boolean;
}

export interface ViewParts {
  app: AppRecord;
  operation: Operation | undefined;
  /** What the runtime knows; absent before it has adopted the app. */
  status: RuntimeStatus | undefined;
  /** Absent when there is nothing to say. */
  backups: AppBackupState | undefined;
  /** When the daemon starts it by itself; absent when it does not. */
  dueStartAtMs: number | undefined;
  /** Absent where nothing newer was found. */
  availableVersion: string | undefined;
  limits: readonly RuntimeLimit[];
  ownerName: string;
  directory: string;
}

export function viewApp(parts: ViewParts): AppView {
  const { app, operation, status, backups, dueStartAtMs, availableVersion, limits, ownerName, directory } =
    parts;
  const { manifest } = app;
  const { state, reason } = stateOf(app, operation, status);
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
    ...(backups !== undefined && { backups: viewBackups(backups) }),
    ...(app.placement !== null && { placement: { on: "swarm", ...app.placement } }),
    tasks: (status?.tasks ?? []).map(({ sinceMs, ...task }) => ({
      ...task,
      since: timestampFromMs(sinceMs),
    })),
    ...(availableVersion !== undefined && { availableVersion }),
  };
}

function viewBackups({
  lastBackupAtMs,
  storages,
  lastProvenAtMs,
  overdue,
}: AppBackupState): AppView["backups"] {
  return {
    ...(lastBackupAtMs !== undefined && { lastBackupAt: timestampFromMs(lastBackupAtMs) }),
    storages: [...storages],
    ...(lastProvenAtMs !== undefined && { lastProvenAt: timestampFromMs(lastProvenAtMs) }),
    overdue,
  };
}

/** What it runs with, or would with its next start. */
export function runningSettings({ settings, startedSettings }: AppRecord, isRunning: boolean): JsonObject {
  return isRunning && startedSettings !== null ? startedSettings : settings;
}

/** The settings of which an app that runs would get other values if it were started now. */
export function changedSettings({ desired, manifest, settings, startedSettings }: AppRecord): string[] {
  if (desired !== "running" || startedSettings === null) return [];
  const next = mergeDefaults(manifest, settings);
  const keys = new Set([...Object.keys(next), ...Object.keys(startedSettings)]);
  return [...keys].filter((key) => !isDeepStrictEqual(next[key], startedSettings[key]));
}

/** An operation that changes the app's state shows as it; else what the runtime says, else what was last known. */
export function stateOf(
  app: AppRecord,
  operation: Operation | undefined,
  status: RuntimeStatus | undefined,
): { state: AppState; reason: string } {
  const underway = operation === undefined ? undefined : stateDuring(operation);
  if (underway !== undefined) {
    const reason = operation?.detail.awaitsEngine === true ? "it waits for the container engine" : "";
    return { state: underway, reason };
  }
  // Whatever runs of it: what it was told to do cannot be read any more.
  if (!isReadable(app)) return { state: "FAILED", reason: app.stateReason };
  // Nothing runs of what could not be started; that it failed is what its owner has to know.
  if (app.state === "FAILED" && !isUp(status?.state)) return { state: "FAILED", reason: app.stateReason };
  if (status !== undefined && app.state !== "INSTALLING")
    return { state: status.state, reason: status.reason };
  return { state: app.state, reason: app.stateReason };
}

/** Those that are undone when they end before they are done. */
const cancelable: ReadonlySet<AppOperationKind> = new Set([
  "install",
  "upgrade",
  "clone",
  "backup",
  "restore",
  "repull",
]);

function stateDuring(operation: Operation): AppState | undefined {
  switch (operation.kind) {
    case "install":
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
