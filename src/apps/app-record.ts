/** What svc keeps of an installed app: one row of `apps`, with the part that only this folder understands as JSON. */
import type { AppRuntime } from "../../gen/svc/v1/words.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest.ts";
import type { PackageOrigin } from "../packages/resolved-package.ts";
import type { Placement } from "../runtimes/runtime.ts";
import { nothingAccepted, type Acknowledgement } from "./acknowledgement.ts";
import type { SqlValue, Statement } from "../store/store.ts";

/** The state between operations: what the supervisor said last, or how the last operation ended. */
export type SettledState = "INSTALLING" | "STOPPED" | "RUNNING" | "FAILED" | "CRASHED";

/** How a start failed. */
export interface StartFailure {
  exitCode?: number;
  signal?: string;
  lastLines: string[];
}

/** The part of an app that is JSON in its row. */
interface AppDocument {
  /** The uid that its files belong to and its processes run as: the owner's, but for root's apps under `root_runs_as`. */
  runUid: number;
  origin: PackageOrigin;
  /** The tag, else the short commit, else the manifest's version. */
  version: string;
  manifest: Manifest;
  /** When it was last upgraded or its settings changed, unix milliseconds. */
  changedAtMs: number;
  /** The values, defaults among them, that the app was last started with; null before its first start. */
  startedSettings: JsonObject | null;
  /** How its last start failed; null when it did not. */
  failure: StartFailure | null;
  /** The licenses and permissions that were accepted for it. */
  accepted: Acknowledgement;
  /** How it runs on a swarm; null on this machine. */
  placement: Placement | null;
}

interface AppColumns {
  id: string;
  ownerUid: number;
  name: string;
  runtime: AppRuntime;
  packageId: string;
  /** The chosen settings, without defaults. */
  settings: JsonObject;
  /** What its people want: set by start and restart, cleared by stop and removal, and by nothing else. */
  desired: "running" | "stopped";
  state: SettledState;
  stateReason: string;
  createdAtMs: number;
}

export interface AppRecord extends Readonly<AppColumns>, Readonly<AppDocument> {
  /** Grows with every write of the row. */
  readonly rowVersion: number;
  /** Why the row cannot be read: all but its columns is made up then, see `unreadable-app.ts`. Absent where it can. */
  readonly unreadable?: string;
}

/** An app that is not in the database yet. */
export type NewApp = Omit<AppRecord, "rowVersion">;

/** What tells an app apart that is being made from others that are. */
type MadeApp = Omit<
  NewApp,
  | "desired"
  | "state"
  | "stateReason"
  | "createdAtMs"
  | "changedAtMs"
  | "startedSettings"
  | "failure"
  | "placement"
> &
  Partial<Pick<NewApp, "placement">>;

/** An app that is being made: nobody has started it. */
export function newApp(made: MadeApp, nowMs: number): NewApp {
  return {
    placement: null,
    ...made,
    desired: "stopped",
    state: "INSTALLING",
    stateReason: "",
    createdAtMs: nowMs,
    changedAtMs: nowMs,
    startedSettings: null,
    failure: null,
  };
}

/** A row of `apps` as SQLite answers it. */
export interface AppRow {
  id: string;
  owner_uid: number;
  name: string;
  runtime: string;
  package_id: string;
  record: string;
  settings: string;
  desired: string;
  state: string;
  state_reason: string | null;
  created_at: number;
  updated_at: number;
}

/** @throws SyntaxError for what is no JSON; whether it is an app is not looked at, see `readApp` */
export function recordOfRow(row: AppRow): AppRecord {
  return {
    // Records from before these were kept have none.
    accepted: nothingAccepted,
    startedSettings: null,
    placement: null,
    ...(JSON.parse(row.record) as Omit<AppDocument, "accepted" | "startedSettings" | "placement">),
    id: row.id,
    ownerUid: row.owner_uid,
    name: row.name,
    runtime: row.runtime as AppRuntime,
    packageId: row.package_id,
    settings: JSON.parse(row.settings) as JsonObject,
    desired: row.desired === "running" ? "running" : "stopped",
    state: row.state as SettledState,
    stateReason: row.state_reason ?? "",
    createdAtMs: row.created_at,
    rowVersion: row.updated_at,
  };
}

/** Adds an app; a taken id is a conflict. */
export function insertApp(app: NewApp): Statement {
  const { runUid, origin, version, manifest, changedAtMs } = app;
  const { startedSettings, failure, accepted, placement } = app;
  const document: AppDocument = {
    runUid,
    origin,
    version,
    manifest,
    changedAtMs,
    startedSettings,
    failure,
    accepted,
    placement,
  };
  return {
    sql: `INSERT INTO apps (id, owner_uid, name, runtime, package_id, record, settings, desired, state, state_reason,
                            created_at, updated_at)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    params: [
      app.id,
      app.ownerUid,
      app.name,
      app.runtime,
      app.packageId,
      JSON.stringify(document),
      JSON.stringify(app.settings),
      app.desired,
      app.state,
      app.stateReason,
      app.createdAtMs,
      app.createdAtMs,
    ],
    changes: 1,
  };
}

export type AppPatch = Partial<
  Pick<AppColumns, "settings" | "desired" | "state" | "stateReason"> & Omit<AppDocument, "runUid">
>;

const patchedColumns: Readonly<Record<string, string>> = {
  settings: "settings",
  desired: "desired",
  state: "state",
  stateReason: "state_reason",
};

/**
 * Writes only what `patch` names, so that a state that the supervisor reports and settings that somebody saves at the
 * same moment do not undo each other. An app that is gone is a conflict.
 */
export function patchApp(id: string, patch: AppPatch): Statement {
  const assignments: string[] = ["updated_at = updated_at + 1"];
  const params: SqlValue[] = [];
  const documentParts: string[] = [];
  const documentParams: SqlValue[] = [];
  for (const [key, value] of Object.entries(patch)) {
    const column = patchedColumns[key];
    if (column === undefined) {
      documentParts.push(`'$.${key}', json(?)`);
      documentParams.push(JSON.stringify(value));
    } else {
      assignments.push(`${column} = ?`);
      params.push(typeof value === "string" ? value : JSON.stringify(value));
    }
  }
  if (documentParts.length > 0) {
    assignments.push(`record = json_set(record, ${documentParts.join(", ")})`);
    params.push(...documentParams);
  }
  return {
    sql: `UPDATE apps SET ${assignments.join(", ")} WHERE id = ?`,
    params: [...params, id],
    changes: 1,
  };
}

/** Changes nothing; a conflict when the app is gone, or its people want something else. */
export function requireDesired(id: string, desired: AppRecord["desired"]): Statement {
  return {
    sql: "UPDATE apps SET desired = desired WHERE id = ? AND desired = ?",
    params: [id, desired],
    changes: 1,
  };
}

export function deleteApp(id: string): Statement {
  return { sql: "DELETE FROM apps WHERE id = ?", params: [id] };
}
