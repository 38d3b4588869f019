/** Commands of a regular user as on a host without svc, wherever the tests run: where it is installed they would ask for its daemon. */
import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { defaultPaths } from "../../src/daemon/paths.ts";
import { isRoot } from "./daemon.ts";

const { storeDir, socket } = defaultPaths({ uid: 0, home: "/root", env: {} });

/** Executes what follows as a regular user: `nobody` when the tests run as root, whose own paths are the system's. */
export const asUserWithoutSvc: readonly string[] = [
  ...(existsSync(storeDir) || existsSync(socket) ? hiding() : []),
  ...(isRoot ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"] : []),
];

/** In a mount namespace of its own, for which who is not root needs a user namespace, and then another to be who they were. */
function hiding(): string[] {
  const mounts = [dirname(storeDir), dirname(socket)]
    .filter((dir) => existsSync(dir))
    .map((dir) => `mount -t tmpfs none ${dir}`);
  const hidden = ["--mount", "sh", "-c", [...mounts, 'exec "$@"'].join(" && "), "sh"];
  if (isRoot) return ["unshare", ...hidden];
  const self = [`--map-user=${process.getuid?.()}`, `--map-group=${process.getgid?.()}`];
  return ["unshare", "--map-root-user", ...hidden, "unshare", "--user", ...self];
}
