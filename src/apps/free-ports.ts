/** Free ports for an app whose own are taken: a copy and its source cannot both have 8080 (decisions 36). */
import type { JsonObject } from "../lib/json.ts";
import { type Manifest, settingsOf } from "../packages/manifest.ts";
import { mergeDefaults, resolvePorts } from "../packages/settings.ts";
import { runningSettings } from "./app-view.ts";
import type { AppsContext } from "./apps-context.ts";

const maxPort = 65_535;

/** Ports for one app that is not in the database yet; whoever is asked meanwhile gets others. */
export interface ChosenPorts extends Disposable {
  /** `values` with the ports that were chosen. */
  readonly settings: JsonObject;
  /** One sentence for each. */
  readonly notes: readonly string[];
}

export class FreePorts {
  readonly #options: AppsContext;
  /** Chosen for apps that are being made. */
  readonly #promised = new Set<number>();

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /**
   * The next free port wherever a setting gives the number, is not in `fixed`, and its port is taken: by another app,
   * whether that runs or not, or by whoever listens.
   */
  async choose(
    manifest: Pick<Manifest, "settings" | "ports">,
    values: JsonObject,
    fixed: ReadonlySet<string> = new Set(),
  ): Promise<ChosenPorts> {
    const listeners = await this.#options.ports.listeners();
    const declared = this.#declared();
    const isTaken = (port: number): boolean =>
      listeners.has(port) || declared.has(port) || this.#promised.has(port);
    const merged = mergeDefaults(manifest, values);
    const bounds = new Map(settingsOf(manifest));
    const chosen = new Map<string, number>();
    const notes: string[] = [];
    for (const { name, setting } of manifest.ports) {
      const wanted = setting === undefined ? undefined : merged[setting];
      if (setting === undefined || typeof wanted !== "number" || chosen.has(setting)) continue;
      if (fixed.has(setting) || !isTaken(wanted)) continue;
      const { minimum = 1, maximum = maxPort } = bounds.get(setting) ?? {};
      const port = nextFree(wanted, { minimum, maximum: Math.min(maximum, maxPort) }, isTaken);
      if (port === undefined) continue;
      chosen.set(setting, port);
      this.#promised.add(port);
      notes.push(`Port ${name} is ${port}, as ${wanted} is taken`);
    }
    return {
      settings: { ...values, ...Object.fromEntries(chosen) },
      notes,
      [Symbol.dispose]: () => {
        for (const port of chosen.values()) this.#promised.delete(port);
      },
    };
  }

  /** The ports of all apps, of their next starts and of what runs. */
  #declared(): Set<number> {
    const apps = this.#options.registry.all();
    const ports = apps.flatMap((app) => [
      ...resolvePorts(app.manifest, app.settings),
      ...resolvePorts(app.manifest, runningSettings(app, true)),
    ]);
    return new Set(ports.map(({ port }) => port));
  }
}

function nextFree(
  wanted: number,
  { minimum, maximum }: { minimum: number; maximum: number },
  isTaken: (port: number) => boolean,
): number | undefined {
  // Never one that only root may bind where the wanted one is none.
  const lowest = Math.max(minimum, wanted < 1024 ? 1 : 1024);
  for (let port = wanted + 1; port <= maximum; port++) if (!isTaken(port)) return port;
  for (let port = lowest; port < wanted; port++) if (!isTaken(port)) return port;
  return undefined;
}
