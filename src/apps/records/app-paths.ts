/** Paths of an app's directories. */
import { join } from "node:path";

export interface AppPaths {
  /** `<store>/apps`: owned by the daemon's user, with one directory per app. */
  readonly appsDir: string;
  /** `<store>/run`: owned by the daemon's user, with one directory per app. */
  readonly runDir: string;
  /** `<store>/adopted`: packages that svc wrote for adopted containers. */
  readonly adoptedDir: string;
  /** The app's tree. Its top directory belongs to the daemon's user; its content belongs to the uid that runs the app. */
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
    adoptedDir: join(storeDir, "adopted"),
    appDir: (id) => join(appsDir, id),
    appRunDir: (id) => join(runDir, id),
  };
}
