/** The stored record of an installed app: one row of `apps`. Values that only this room uses are in one JSON column. */
import { AppRuntimes, type AppRuntime } from "../../../gen/svc/v1/values.ts";
import { isObject, type JsonObject } from "../../lib/json.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import type { PackageOrigin } from "../../packages/resolved-package.ts";
import type { AdoptedData, AdoptedMount, Placement } from "../../runtimes/runnable-app.ts";
import { nothingAccepted, type Acknowledgement } from "../changes/acknowledgement.ts";
import {
  isInstant,
  isName,
  isNumber,
  isText,
  isUid,
  isInteger,
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
} from "../../store/row-document.ts";
import type { RowKind } from "../../store/row-reader.ts";
import type { SqlValue, Statement } from "../../store/store.ts";

const settledStates = ["INSTALLING", "STOPPED", "RUNNING", "FAILED", "CRASHED"] as const;

/** The state between operations: the supervisor's last report, or the result of the last operation. */
export type SettledState = (typeof settledStates)[number];

/** The failure of a start. */
export interface StartFailure {
  exitCode?: number;
  signal?: string;
  lastLines: string[];
}

/** The values in the JSON column. */
interface AppDocument {
  /** The uid of its files and processes: the owner's uid, except for root's apps under `root_runs_as`. */
  runUid: number;
  origin: PackageOrigin;
  /** The tag; without one the short commit, or else the manifest's version. */
  version: string;
  manifest: Manifest;
  /** The owner's name when a start was last requested; empty before, and for the daemon's own apps. */
  ownerName: string;
  /** Time of the last upgrade or change of settings, unix milliseconds. */
  changedAtMs: number;
  /** The values of the last start, including defaults; null before the first start. */
  startedSettings: JsonObject | null;
  /** The failure of its last start; null if it succeeded. */
  failure: StartFailure | null;
  /** The licenses and permissions that were accepted for it. */
  accepted: Acknowledgement;
  /** Placement on a swarm; null if it runs on this host. */
  placement: Placement | null;
  /** Data of the adopted stack; null for other apps. */
  adopted: AdoptedData | null;
}

interface AppColumns {
  id: string;
  ownerUid: number;
  name: string;
  runtime: AppRuntime;
  packageId: string;
  /** The chosen settings, without defaults. */
  settings: JsonObject;
  /** The desired state: only start and restart set it; only stop and removal clear it. */
  desired: "running" | "stopped";
  state: SettledState;
  stateReason: string;
  createdAtMs: number;
}

export interface AppRecord extends Readonly<AppColumns>, Readonly<AppDocument> {
  /** Increases with every write of the row. */
  readonly rowVersion: number;
  /** True if the row cannot be read; everything except its columns is a placeholder, see `unreadable-app.ts`. */
  readonly unreadable?: true;
}

/** An app that is not in the database yet. */
export type NewApp = Omit<AppRecord, "rowVersion">;

/** Initial values of every new app, which has not been started. */
const unstarted = {
  desired: "stopped",
  state: "INSTALLING",
  stateReason: "",
  ownerName: "",
  startedSettings: null,
  failure: null,
} as const;

/** Values that differ between new apps; without a placement the app runs on this host. */
type MadeApp = Omit<
  NewApp,
  keyof typeof unstarted | "createdAtMs" | "changedAtMs" | "placement" | "adopted"
> &
  Partial<Pick<NewApp, "placement" | "adopted">>;

/** A new app. */
export function newApp(made: MadeApp, nowMs: number): NewApp {
  return { placement: null, adopted: null, ...made, ...unstarted, createdAtMs: nowMs, changedAtMs: nowMs };
}

/** A row of `apps` as SQLite returns it. */
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

/** The parts of a manifest that every view of an app needs. The details were checked before the manifest was stored. */
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

/** Parts that are used in only one place, which reports invalid values itself. */
type LooseFields = "clone";

const documentFields: Fields<AppDocument> = {
  runUid: isInteger,
  origin: (value) =>
    isObject(value) &&
    ["kind", "url", "source", "branch", "tag", "commit"].every((name) => isText(value[name])),
  version: isText,
  manifest: isManifest,
  ownerName: maybe(isText),
  changedAtMs: maybe(isInstant),
  startedSettings: maybe(orNull(isObject)),
  failure: maybe(
    orNull(
      (value) =>
        isObject(value) &&
        maybe(isInteger)(value["exitCode"]) &&
        maybe(isText)(value["signal"]) &&
        listOf(isText)(value["lastLines"]),
    ),
  ),
  accepted: maybe(
    (value) => isObject(value) && listOf(isText)(value["licenses"]) && Array.isArray(value["permissions"]),
  ),
  placement: maybe(orNull(objectOf({ replicas: isInteger, ports: isText }))),
  adopted: maybe(
    orNull(
      objectOf<AdoptedData>({
        ...{ directory: isText, binds: listOf(isText), paths: listOf(isText) },
        ...{ leftOut: listOf(isText), volumes: recordOf(isText), networks: recordOf(isText) },
        mounts: listOf(objectOf<AdoptedMount>({ service: isText, target: isText, key: isText })),
      }),
    ),
  ),
};

const columns: Fields<AppRow> = {
  ...{ id: isName, owner_uid: isUid, name: isText, runtime: isRuntime, package_id: isText },
  ...{ record: isText, settings: isText, desired: oneOf(["running", "stopped"]) },
  ...{
    state: oneOf(settledStates),
    state_reason: orNull(isText),
    created_at: isInstant,
    updated_at: isInteger,
  },
};

export const appRows: RowKind<AppRow, AppRecord> = {
  table: "apps",
  columns,
  nameOf: ({ id }) => `app "${id}"`,
  remedy: ({ id }) =>
    `svc backup restore ${id} latest --as-new makes a new app of its last backup, svc remove ${id} removes it`,
  read: recordOfRow,
};

/** @throws UnreadableRow */
function recordOfRow(row: AppRow): AppRecord {
  const settings = readChecked(row.settings, isObject, "its settings are not an object");
  return {
    // Older records do not have this value.
    accepted: nothingAccepted,
    ownerName: "",
    startedSettings: null,
    placement: null,
    adopted: null,
    changedAtMs: row.created_at,
    ...(readDocument<AppDocument>(row.record, documentFields) as Omit<
      AppDocument,
      "accepted" | "ownerName" | "startedSettings" | "placement" | "adopted" | "changedAtMs"
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

/** Adds an app. An existing ID is a conflict. */
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
  Pick<AppColumns, "name" | "settings" | "desired" | "state" | "stateReason"> & Omit<AppDocument, "runUid">
>;

const patchedColumns: Readonly<Record<string, string>> = {
  name: "name",
  settings: "settings",
  desired: "desired",
  state: "state",
  stateReason: "state_reason",
};

/**
 * Writes only the values in `patch`, so that a state from the supervisor and settings saved at the same moment do not undo each
 * other. A removed app is a conflict.
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

/** Changes nothing. A conflict if the app was removed or its desired state differs. */
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
