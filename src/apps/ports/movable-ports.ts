/** Ports whose number a setting gives, so that an app can use another one. */
import type { JsonObject } from "../../lib/json.ts";
import { settingsOf, type Manifest } from "../../packages/manifest/manifest.ts";
import { mergeDefaults, type ResolvedPort } from "../../packages/settings/settings.ts";
import type { PortKey } from "./port-reservations.ts";

const maxPort = 65_535;

export interface MovablePort {
  /** Its name in the manifest; of several ports with one setting the first. */
  readonly name: string;
  readonly setting: string;
  readonly protocols: readonly ("tcp" | "udp")[];
  /** The number with the values given. */
  readonly port: number;
  /** The bounds of the setting. */
  readonly minimum: number;
  readonly maximum: number;
}

/** One for each setting that gives the number of a port. @param values may lack defaults */
export function movablePorts(
  manifest: Pick<Manifest, "settings" | "ports">,
  values: JsonObject,
): MovablePort[] {
  const merged = mergeDefaults(manifest, values);
  const schemas = new Map(settingsOf(manifest));
  const settings = new Set(manifest.ports.flatMap(({ setting }) => setting ?? []));
  return [...settings].flatMap((setting) => {
    const port = merged[setting];
    if (typeof port !== "number") return [];
    const ports = manifest.ports.filter((each) => each.setting === setting);
    const { minimum = 1, maximum = maxPort } = schemas.get(setting) ?? {};
    return [
      {
        ...{ setting, port, minimum, maximum: Math.min(maximum, maxPort) },
        name: ports[0]?.name ?? setting,
        protocols: [...new Set(ports.map(({ protocol }) => protocol))],
      },
    ];
  });
}

/** The next number within the bounds that is free for all protocols of the port; undefined if there is none. */
export function nextFree(
  { port: from, protocols, minimum, maximum }: Omit<MovablePort, "name" | "setting">,
  isTaken: (key: PortKey) => boolean,
): number | undefined {
  const isFree = (port: number): boolean => !protocols.some((protocol) => isTaken(`${protocol}/${port}`));
  // A port that only root may bind cannot replace one that every user may bind.
  const lowest = Math.max(minimum, from < 1024 ? 1 : 1024);
  for (let port = from + 1; port <= maximum; port++) if (isFree(port)) return port;
  for (let port = lowest; port < from; port++) if (isFree(port)) return port;
  return undefined;
}

/** A remark on a port of an app that cannot start with it. @param by the holder */
export function takenPortNote(
  manifest: Pick<Manifest, "settings" | "ports"> & Partial<Pick<Manifest, "runtime">>,
  values: JsonObject,
  { name, port }: Pick<ResolvedPort, "name" | "port">,
  by: string,
): string {
  const isFixed = !movablePorts(manifest, values).some((each) => each.port === port);
  const why = isFixed ? `; ${explainFixedPort(manifest, port)}` : "";
  return `port ${port} ("${name}") is in use by ${by}, so the app cannot start${why}`;
}

/** Why no other port can be chosen, and how the package's author changes that. */
export function explainFixedPort({ runtime }: Partial<Pick<Manifest, "runtime">>, port: number): string {
  const fixed = "the package fixes the number";
  if (runtime?.kind !== "compose") return fixed;
  return `${fixed}; write \${PORT:-${port}} in ${runtime.file}, and generate svc.yaml again`;
}
