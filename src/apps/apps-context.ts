/** What the parts of this folder share. Each takes it whole, and says beside it what it alone needs. */
import type { Identities } from "../identity/identities.ts";
import type { PackageResolver } from "../packages/package-resolver.ts";
import type { AppRuntime, RunnableApp } from "../runtimes/runtime.ts";
import type { Store } from "../store/store.ts";
import type { AppPaths } from "./app-paths.ts";
import type { AppRecord, NewApp } from "./app-record.ts";
import type { AppRegistry } from "./app-registry.ts";
import type { Operations } from "./operations.ts";
import type { PortHolders } from "./port-holders.ts";
import type { Log } from "../lib/log.ts";

export interface AppsContext {
  store: Store;
  registry: AppRegistry;
  operations: Operations;
  identities: Identities;
  packages: PackageResolver;
  ports: PortHolders;
  paths: AppPaths;
  /** Environment of the steps of a manifest, beside what it says. */
  buildEnv: Readonly<Record<string, string>>;
  /** Where they find programs. */
  programDirs: readonly string[];
  runtimes: readonly AppRuntime[];
  runtimeOf: (app: NewApp) => AppRuntime;
  /** All that may have something of an app, for what ends it: of one that cannot be read it is not known whether it is on a swarm. */
  runtimesOf: (app: AppRecord) => readonly AppRuntime[];
  runnable: (app: NewApp) => RunnableApp;
  /** The uid that an owner's apps belong to and run as. */
  runUidOf: (ownerUid: number) => Promise<number>;
  /** The name of a uid; empty when the host has none. */
  userName: (uid: number) => Promise<string>;
  now: () => number;
  log: Log;
}
