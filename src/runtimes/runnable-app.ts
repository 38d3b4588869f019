/** The data of an app that runtimes receive. */
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest/manifest.ts";
import { isGranted, type Permission } from "../packages/manifest/permissions.ts";

/** The parts of an app that a runtime needs. */
export interface RunnableApp {
  readonly id: string;
  readonly name: string;
  /** The owner, who decides what the app may ask of the host. */
  readonly ownerUid: number;
  /** The uid of its files and processes. */
  readonly uid: number;
  /** The app's own tree: `repo/`, `data/`, `volumes/`, `logs/`. */
  readonly directory: string;
  /** A checkout that is prepared beside the current one; absent for the current one. */
  readonly checkout?: string;
  /** Supervisor state and logs. */
  readonly runDir: string;
  /** The tag; without one the short commit, or else the manifest's version. */
  readonly version: string;
  readonly manifest: Manifest;
  /** The chosen settings, without defaults. */
  readonly settings: JsonObject;
  /** The values of the last start, including defaults; null before the first start. */
  readonly startedSettings: JsonObject | null;
  /** Placement on a swarm; absent on this host. */
  readonly placement?: Placement;
  /** Data of the adopted stack; absent for other apps. */
  readonly adopted?: AdoptedData;
}

/** Data of an adopted compose project or container, which the app uses in place. */
export interface AdoptedData {
  /** The directory of the project. */
  readonly directory: string;
  /** Paths relative to this directory that services mount from there, instead of from the app's own directory. */
  readonly binds: readonly string[];
  /** Absolute paths that the stack's containers mounted: `binds` and others. They stay when the app is removed. */
  readonly paths: readonly string[];
  /** Entries of `binds` that are not copied with the package. */
  readonly leftOut: readonly string[];
  /** Engine volumes by their key in the compose file. */
  readonly volumes: Readonly<Record<string, string>>;
  /** Networks by their key in the compose file. */
  readonly networks: Readonly<Record<string, string>>;
  /** Volumes of services that the compose file does not name; `key` is a key of `volumes`. */
  readonly mounts: readonly AdoptedMount[];
}

export interface AdoptedMount {
  readonly service: string;
  /** Path in the container. */
  readonly target: string;
  readonly key: string;
}

/** Placement on a swarm. */
export interface Placement {
  /** Number of tasks; in a compose project, of each service without data and without a number of its own. */
  readonly replicas: number;
  /** `host`: ports are published on the nodes that run the app. `mesh`: on every node. */
  readonly ports: "host" | "mesh";
}

/** Whether an app has a permission: only root can accept what a manifest asks for, so apps of other users have none. */
export function hasPermission(
  { ownerUid, manifest }: Pick<RunnableApp, "ownerUid" | "manifest">,
  permission: Permission,
): boolean {
  return ownerUid === 0 && isGranted(manifest.permissions, permission);
}
