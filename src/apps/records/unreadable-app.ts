/**
 * An app whose row cannot be read. A placeholder from its readable columns keeps the other apps working, and lets users see, stop
 * and remove the app.
 */
import type { AppRuntime } from "../../../gen/svc/v1/values.ts";
import { SvcError } from "../../errors.ts";
import type { Manifest, Runtime } from "../../packages/manifest/manifest.ts";
import { damaged, isInstant, isUid, nobodyUid } from "../../store/row-document.ts";
import { nothingAccepted } from "../changes/acknowledgement.ts";
import { isRuntime, type AppRecord, type AppRow } from "./app-record.ts";

export function isReadable({ unreadable }: AppRecord): boolean {
  return unreadable !== true;
}

/** @throws SvcError `store_damaged` if only the columns of the app's row are readable */
export function requireReadable(app: AppRecord): void {
  if (!isReadable(app)) throw new SvcError("store_damaged", `app "${app.id}": ${reason}`);
}

/** The remedy for users; the log has the problem with the row. */
const reason = `${damaged}: restore a backup of it as a new app, then remove it; until then it can only be stopped`;

export function placeholderOf(row: AppRow): AppRecord {
  const runtime = isRuntime(row.runtime) ? row.runtime : "process";
  const ownerUid = isUid(row.owner_uid) ? row.owner_uid : nobodyUid;
  const createdAtMs = isInstant(row.created_at) ? row.created_at : 0;
  return {
    unreadable: true,
    id: row.id,
    ownerUid,
    runUid: ownerUid,
    name: row.name,
    runtime,
    packageId: row.package_id,
    origin: { kind: "directory", url: "", source: "", branch: "", tag: "", commit: "" },
    version: "",
    manifest: emptyManifest(row, runtime),
    settings: {},
    desired: row.desired === "running" ? "running" : "stopped",
    state: "FAILED",
    stateReason: reason,
    ownerName: "",
    startedSettings: null,
    failure: null,
    accepted: nothingAccepted,
    placement: null,
    adopted: null,
    ...{ createdAtMs, changedAtMs: createdAtMs },
    rowVersion: row.updated_at,
  };
}

/** A manifest with the schema's defaults, as far as stopping and removing an app needs them. */
function emptyManifest({ package_id, name }: AppRow, runtime: AppRuntime): Manifest {
  return {
    id: package_id,
    ...{ name, version: "", summary: "", homepage: "" },
    runtime: emptyRuntime(runtime),
    ...{ ports: [], volumes: [], limits: {}, permissions: [] },
    stop: { signal: "SIGTERM", graceMs: 10_000 },
    restart: { policy: "never", delayMs: 1_000, maxDelayMs: 1_000, maxAttempts: 0, resetAfterMs: 1_000 },
  };
}

function emptyRuntime(kind: AppRuntime): Runtime {
  const nothing = { argv: [], build: [], env: {}, workingDir: "." };
  switch (kind) {
    case "process":
      return { kind, ...nothing };
    case "service":
      return { kind, ...nothing };
    case "compose":
      return { kind, file: "", profiles: [], env: {} };
    case "docker":
      return {
        kind,
        ...{ env: {}, privileged: false, network: "bridge", pid: "container", ipc: "container" },
        ...{ devices: [], capabilities: [], mounts: [] },
      };
  }
}
