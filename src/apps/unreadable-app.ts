/**
 * An app whose row cannot be read: what is left of it stands in for it, so that it does not take the others away, and can be
 * seen, stopped and removed.
 */
import type { AppRuntime } from "../../gen/svc/v1/words.ts";
import { SvcError } from "../errors.ts";
import type { Manifest, Runtime } from "../packages/manifest.ts";
import { damaged, isInstant, isUid, nobodyUid } from "../store/row-document.ts";
import { nothingAccepted } from "./acknowledgement.ts";
import { isRuntime, type AppRecord, type AppRow } from "./app-record.ts";

export function isReadable({ unreadable }: AppRecord): boolean {
  return unreadable !== true;
}

/** @throws SvcError `store_damaged` for what cannot be done with an app of which only its row's columns are known */
export function requireReadable(app: AppRecord): void {
  if (!isReadable(app)) throw new SvcError("store_damaged", `app "${app.id}": ${reason}`);
}

/** What its people can do; what is wrong with the row is for the log. */
const reason = `${damaged}: restore a backup of it as a new app, then remove it; until then it can only be stopped`;

export function standInOf(row: AppRow): AppRecord {
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
    startedSettings: null,
    failure: null,
    accepted: nothingAccepted,
    placement: null,
    ...{ createdAtMs, changedAtMs: createdAtMs },
    rowVersion: row.updated_at,
  };
}

/** With the defaults of a manifest's schema, as far as an app is stopped and removed by them. */
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
