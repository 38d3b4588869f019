/**
 * An app whose row cannot be read: what is left of it stands in for it, so that it does not take the others away, and can be
 * seen, stopped and removed.
 */
import { AppRuntimes, type AppRuntime } from "../../gen/svc/v1/words.ts";
import { SvcError } from "../errors.ts";
import type { Manifest, Runtime } from "../packages/manifest.ts";
import { nothingAccepted } from "./acknowledgement.ts";
import { recordOfRow, type AppRecord, type AppRow } from "./app-record.ts";

/** The app of a row, or what stands in for it. */
export function readApp(row: AppRow): AppRecord {
  let problem: string | undefined;
  try {
    const app = recordOfRow(row);
    problem = shapeProblem(app);
    if (problem === undefined) return app;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    problem = error.message;
  }
  return standIn(row, problem);
}

export function isReadable({ unreadable }: AppRecord): boolean {
  return unreadable === undefined;
}

/** @throws SvcError `store_damaged` for what cannot be done with an app of which only its row's columns are known */
export function requireReadable(app: AppRecord): void {
  if (!isReadable(app)) throw new SvcError("store_damaged", `app "${app.id}": ${reason}`);
}

/** What its people can do; what is wrong with the row is for the log. */
const reason =
  "what svc keeps of it is damaged: restore a backup of it as a new app, then remove it; until then it can only be stopped";

/** What everybody relies on who looks at an app. What a manifest says in detail was checked when it was written. */
function shapeProblem({
  runtime,
  runUid,
  version,
  origin,
  manifest,
  settings,
}: AppRecord): string | undefined {
  const parts: Record<string, boolean> = {
    runtime: isRuntime(runtime),
    runUid: Number.isInteger(runUid),
    version: typeof version === "string",
    origin: isObject(origin) && typeof origin.url === "string",
    settings: isObject(settings),
    manifest: isObject(manifest) && isWholeManifest(manifest),
  };
  const missing = Object.keys(parts).filter((name) => parts[name] !== true);
  return missing.length === 0 ? undefined : `it has no right ${missing.join(", ")}`;
}

function isWholeManifest({
  id,
  runtime,
  ports,
  volumes,
  stop,
  restart,
  limits,
  permissions,
}: Manifest): boolean {
  return (
    typeof id === "string" &&
    isObject(runtime) &&
    isRuntime(runtime.kind) &&
    [ports, volumes, permissions].every((list) => Array.isArray(list)) &&
    [stop, restart, limits].every(isObject)
  );
}

/** Whatever the types say: it comes from a row that may be damaged. */
function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isRuntime(word: string): word is AppRuntime {
  return (AppRuntimes as readonly string[]).includes(word);
}

function standIn(row: AppRow, problem: string): AppRecord {
  const runtime = isRuntime(row.runtime) ? row.runtime : "process";
  return {
    unreadable: problem,
    id: row.id,
    ownerUid: row.owner_uid,
    runUid: row.owner_uid,
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
    createdAtMs: row.created_at,
    changedAtMs: row.created_at,
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
