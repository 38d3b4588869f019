/** What svc keeps of an installed app: one row of `apps`, with the part that only this folder understands as JSON. */
import { AppRuntimes, type AppRuntime } from "../../gen/svc/v1/words.ts";
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest.ts";
import type { PackageOrigin } from "../packages/resolved-package.ts";
import type { Placement } from "../runtimes/runtime.ts";
import { nothingAccepted, type Acknowledgement } from "./acknowledgement.ts";
import {
  isInstant,
  isName,
  isNumber,
  isObject,
  isText,
  isUid,
  isWhole,
  listOf,
  maybe,
  objectOf,
  oneOf,
  orNull,
  readChecked,
  readDocument,
  recordOf,
  type Check,
  type Fields,
} from "../store/row-document.ts";
import type { RowKind } from "../store/row-reader.ts";
import type { SqlValue, Statement } from "../store/store.ts";

const settledStates = ["INSTALLING", "STOPPED", "RUNNING", "FAILED", "CRASHED"] as const;

/** The state between operations: what the supervisor said last, or how the last operation ended. */
export type SettledState = (typeof settledStates)[number];

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
  /** The row cannot be read: all but its columns is made up, see `unreadable-app.ts`. */
  readonly unreadable?: true;
}

/** An app that is not in the database yet. */
export type NewApp = Omit<AppRecord, "rowVersion">;

/** What all apps are that are being made: nobody has started them. */
const unstarted = {
  desired: "stopped",
  state: "INSTALLING",
  stateReason: "",
  startedSettings: null,
  failure: null,
} as const;

/** What tells an app apart that is being made from others that are; without a placement it is on this machine. */
type MadeApp = Omit<NewApp, keyof typeof unstarted | "createdAtMs" | "changedAtMs" | "placement"> &
  Partial<Pick<NewApp, "placement">>;

/** An app that is being made. */
export function newApp(made: MadeApp, nowMs: number): NewApp {
  return { placement: null, ...made, ...unstarted, createdAtMs: nowMs, changedAtMs: nowMs };
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

export const isRuntime = oneOf(AppRuntimes);

/** Of a manifest what everybody relies on who looks at an app. What it says in detail was checked when it was written. */
const isManifest: Check = objectOf<Omit<Manifest, LooseFields>>({
  ...{ id: isText, name: isText, version: isText, summary: isText, homepage: isText },
  runtime: (value) => isObject(value) && isRuntime(value["kind"]) && maybe(recordOf(isText))(value["env"]),
  ports: listOf((port) => isObject(port) && isText(port["name"])),
  volumes: listOf((volume) => isObject(volume) && isText(volume["name"]) && isText(volume["path"])),
  stop: objectOf({ signal: isText, graceMs: isNumber }),
  restart: objectOf({
    ...{ policy: isText, delayMs: isNumber, maxDelayMs: isNumber },
    ...{ maxAttempts: isNumber, resetAfterMs: isNumber },
  }),
  limits: isObject,
  permissions: Array.isArray,
  settings: maybe((value) => isObject(value) && maybe(recordOf(isObject))(value["properties"])),
  ...{
    health: maybe(isObject),
    upgrade: maybe(isObject),
    console: maybe(isObject),
    migrate: maybe(isObject),
  },
  backup: maybe(
    (value) => isObject(value) && maybe(isText)(value["trigger"]) && listOf(isText)(value["storages"]),
  ),
});

/** Of which it is enough that the one place which uses it says so when it is wrong. */
type LooseFields = "clone";

const documentFields: Fields<AppDocument> = {
  runUid: isWhole,
  origin: (value) =>
    isObject(value) &&
    ["kind", "url", "source", "branch", "tag", "commit"].every((name) => isText(value[name])),
  version: isText,
  manifest: isManifest,
  changedAtMs: maybe(isInstant),
  startedSettings: maybe(orNull(isObject)),
  failure: maybe(
    orNull(
      (value) =>
        isObject(value) &&
        maybe(isWhole)(value["exitCode"]) &&
        maybe(isText)(value["signal"]) &&
        listOf(isText)(value["lastLines"]),
    ),
  ),
  accepted: maybe(
    (value) => isObject(value) && listOf(isText)(value["licenses"]) && Array.isArray(value["permissions"]),
  ),
  placement: maybe(orNull(objectOf({ replicas: isWhole, ports: isText }))),
};

const columns: Fields<AppRow> = {
  ...{ id: isName, owner_uid: isUid, name: isText, runtime: isRuntime, package_id: isText },
  ...{ record: isText, settings: isText, desired: oneOf(["running", "stopped"]) },
  ...{
    state: oneOf(settledStates),
    state_reason: orNull(isText),
    created_at: isInstant,
    updated_at: isWhole,
  },
};

export const appRows: RowKind<AppRow, AppRecord> = {
  table: "apps",
  columns,
  nameOf: ({ id }) => `app "${id}"`,
  remedy: ({ id }) =>
    `svc backup restore ${id} latest --as-new makes a new app of its last backup, svc app remove ${id} removes it`,
  read: recordOfRow,
};

/** @throws UnreadableRow */
function recordOfRow(row: AppRow): AppRecord {
  const settings = readChecked(row.settings, isObject, "its settings are no object");
  return {
    // Records from before these were kept have none.
    accepted: nothingAccepted,
    startedSettings: null,
    placement: null,
    changedAtMs: row.created_at,
    ...(readDocument<AppDocument>(row.record, documentFields) as Omit<
      AppDocument,
      "accepted" | "startedSettings" | "placement" | "changedAtMs"
    >),
    id: row.id,
    ownerUid: row.owner_uid,
    name: row.name,
    runtime: row.runtime as AppRuntime,
    packageId: row.package_id,
    settings: settings as JsonObject,
    desired: row.desired === "running" ? "running" : "stopped",
    state: row.state as SettledState,
    stateReason: row.state_reason ?? "",
    createdAtMs: row.created_at,
    rowVersion: row.updated_at,
  };
}

/** Adds an app; a taken id is a conflict. */
export function insertApp(app: NewApp): Statement {
  const parts = Object.keys(documentFields) as (keyof AppDocument)[];
  const document = Object.fromEntries(parts.map((part) => [part, app[part]]));
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
