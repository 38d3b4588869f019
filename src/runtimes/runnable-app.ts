/** What runtimes know of an app. */
import type { JsonObject } from "../lib/json.ts";
import type { Manifest } from "../packages/manifest/manifest.ts";

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
}

/** Placement on a swarm. */
export interface Placement {
  /** Number of tasks; in a compose project, of each service without data and without a number of its own. */
  readonly replicas: number;
  /** `host`: ports are published on the nodes that run the app. `mesh`: on every node. */
  readonly ports: "host" | "mesh";
}
