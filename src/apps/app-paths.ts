/** Where an app's things lie (decisions 19). */
import { join } from "node:path";

export interface AppPaths {
  /** `<store>/apps`: root's own, one directory per app. */
  readonly appsDir: string;
  /** `<store>/run`: root's own, one directory per app. */
  readonly runDir: string;
  /** The app's own tree: its root is the daemon's, what is in it belongs to the uid that runs the app. */
  appDir(id: string): string;
  /** Logs, exit codes and supervisor state of the app; belongs to the same uid, 0700. */
  appRunDir(id: string): string;
}

export function createAppPaths(storeDir: string): AppPaths {
  const appsDir = join(storeDir, "apps");
  const runDir = join(storeDir, "run");
  return {
    appsDir,
    runDir,
    appDir: (id) => join(appsDir, id),
    appRunDir: (id) => join(runDir, id),
  };
}
