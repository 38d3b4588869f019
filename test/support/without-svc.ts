/** Commands of a regular user as on a host without svc: if svc is installed, they would call its daemon. */
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { defaultPaths } from "../../src/daemon/paths.ts";
import { isRoot } from "./daemon.ts";

const { storeDir, socket } = defaultPaths({ uid: 0, home: "/root", env: {} });

/** Executes a command as a regular user: `nobody` if the tests run as root, whose paths are the system's. */
export const asUserWithoutSvc: readonly string[] = [
  ...(existsSync(storeDir) || existsSync(socket) ? hiding() : []),
  ...(isRoot ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"] : []),
];

/**
 * In a separate mount namespace, for which a regular user needs a user namespace, and then another to keep their uid.
 */
function hiding(): string[] {
  const mounts = [dirname(storeDir), dirname(socket)]
    .filter((dir) => existsSync(dir))
    .map((dir) => `mount -t tmpfs none ${dir}`);
  const hidden = ["--mount", "sh", "-c", [...mounts, 'exec "$@"'].join(" && "), "sh"];
  if (isRoot) return ["unshare", ...hidden];
  const self = [`--map-user=${process.getuid?.()}`, `--map-group=${process.getgid?.()}`];
  return ["unshare", "--map-root-user", ...hidden, "unshare", "--user", ...self];
}
