/** Default paths: system directories for root, XDG directories for other users. */
import { join } from "node:path";
import { xdgDir } from "../lib/paths.ts";

/** The inputs of the default paths. */
export interface PathEnvironment {
  uid: number;
  home: string;
  env: Readonly<Record<string, string | undefined>>;
}

export interface DefaultPaths {
  configFile: string;
  storeDir: string;
  socket: string;
  /** The socket of the container engine. */
  engineSocket: string;
}

export function defaultPaths(environment: PathEnvironment): DefaultPaths {
  // As the Docker CLI does. A network address belongs to another host's engine.
  const [, engineSocket = "/var/run/docker.sock"] =
    /^unix:\/\/(\/.+)$/.exec(environment.env["DOCKER_HOST"] ?? "") ?? [];
  if (environment.uid === 0) {
    return {
      configFile: "/etc/svc/svc.toml",
      storeDir: "/var/lib/svc",
      socket: "/run/svc/svc.sock",
      engineSocket,
    };
  }
  const storeDir = join(xdgDir(environment, "XDG_STATE_HOME", ".local/state"), "svc");
  const runtimeDir = environment.env["XDG_RUNTIME_DIR"];
  return {
    configFile: join(xdgDir(environment, "XDG_CONFIG_HOME", ".config"), "svc", "svc.toml"),
    storeDir,
    // Without a runtime directory of the session, use the state directory, which is private too.
    socket:
      runtimeDir?.startsWith("/") === true ? join(runtimeDir, "svc", "svc.sock") : join(storeDir, "svc.sock"),
    engineSocket,
  };
}
