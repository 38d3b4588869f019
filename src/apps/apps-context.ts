/** Values that all parts of this room need. Each part adds the values that only it needs. */
import type { UserHelpers } from "../run-as/user-helpers.ts";
import type { PackageResolver } from "../packages/package-resolver.ts";
import type { AppRuntime } from "../runtimes/contract.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import type { Store } from "../store/store.ts";
import type { AppPaths } from "./records/app-paths.ts";
import type { AppRecord, NewApp } from "./records/app-record.ts";
import type { AppRegistry } from "./records/app-registry.ts";
import type { Operations } from "./lifecycle/operations.ts";
import type { PortHolders } from "./ports/port-holders.ts";
import type { Log } from "../lib/log.ts";

export interface AppsContext {
  store: Store;
  registry: AppRegistry;
  operations: Operations;
  userHelpers: UserHelpers;
  packages: PackageResolver;
  ports: PortHolders;
  /** TCP port of the daemon, which no app gets; 0 reserves none. */
  daemonPort: number;
  paths: AppPaths;
  /** Additional environment of the steps of a manifest. */
  buildEnv: Readonly<Record<string, string>>;
  /** Directories in which these steps find programs. */
  programDirs: readonly string[];
  runtimes: readonly AppRuntime[];
  runtimeOf: (app: NewApp) => AppRuntime;
  /** All runtimes that may run parts of an app, for stops and removals: an unreadable app may be on a swarm. */
  runtimesOf: (app: AppRecord) => readonly AppRuntime[];
  runnable: (app: NewApp) => RunnableApp;
  /** The uid that an owner's apps belong to and run as. */
  runUidOf: (ownerUid: number) => Promise<number>;
  /** The name of a uid; empty if the host has none. */
  userName: (uid: number) => Promise<string>;
  now: () => number;
  log: Log;
}
