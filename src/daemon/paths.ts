/** Where svc keeps its things when the configuration does not say: system mode for root, XDG directories for anybody else. */
import { join } from "node:path";
import { xdgDir } from "../lib/paths.ts";

/** What the paths follow from. */
export interface PathEnvironment {
  uid: number;
  home: string;
  env: Readonly<Record<string, string | undefined>>;
}

export interface DefaultPaths {
  configFile: string;
  storeDir: string;
  socket: string;
  /** The container engine's. */
  engineSocket: string;
}

export function defaultPaths(environment: PathEnvironment): DefaultPaths {
  // As the engine's own client has it; what is reached over the network is another host's engine.
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
    // The state directory is private too, where the session gives no runtime directory.
    socket:
      runtimeDir?.startsWith("/") === true ? join(runtimeDir, "svc", "svc.sock") : join(storeDir, "svc.sock"),
    engineSocket,
  };
}
