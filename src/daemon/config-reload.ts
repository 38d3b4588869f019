/** Applies a changed configuration file to a running daemon, as far as that is possible. */
import { CoalescedRequests } from "../lib/coalesced-requests.ts";
import { isObject } from "../lib/json.ts";
import { snakeCase } from "../lib/snake-case.ts";
import type { Config } from "./config.ts";

/** Keys that a running daemon can apply, as spelled in the file. */
export type ReloadableKey = "alerts" | "sources" | "apps.backup_before_upgrade" | "log.level";

export interface ConfigReloadOptions {
  /** The configuration at the daemon's start. */
  readonly config: Config;
  /** Reads the file again and checks it as a start would. */
  readonly load: () => Promise<Config>;
  readonly apply: Readonly<Record<ReloadableKey, (config: Config) => void>>;
}

/** Changed keys, as spelled in the file, in order. */
export interface Reloaded {
  readonly applied: string[];
  readonly needsRestart: string[];
}

export class ConfigReload {
  readonly #options: ConfigReloadOptions;
  /** The effective values by key, as JSON. */
  readonly #current: Map<string, string>;
  readonly #reloads = new CoalescedRequests<undefined, Reloaded>(() => this.#reload());

  constructor(options: ConfigReloadOptions) {
    this.#options = options;
    this.#current = valuesOf(options.config);
  }

  /**
   * Reloads run one at a time. Callers that wait for the same reload share its result, because it reads the file
   * after all of them called.
   * @throws SvcError `invalid_request` for an invalid file; then nothing is applied
   */
  reload(): Promise<Reloaded> {
    return this.#reloads.request(undefined);
  }

  async #reload(): Promise<Reloaded> {
    const { load, apply } = this.#options;
    const config = await load();
    const fresh = valuesOf(config);
    const changed = [...fresh].filter(([key, value]) => this.#current.get(key) !== value);
    const applied: string[] = [];
    const needsRestart: string[] = [];
    for (const [key, value] of changed.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      if (Object.hasOwn(apply, key)) {
        apply[key as ReloadableKey](config);
        this.#current.set(key, value);
        applied.push(key);
      } else needsRestart.push(key);
    }
    return { applied, needsRestart };
  }
}

/** Keys whose spelling in the file differs from their property path in the configuration. */
const spellings: Readonly<Record<string, string>> = {
  "apps.back_up_before_upgrade": "apps.backup_before_upgrade",
};

function valuesOf({ mode: _, file: __, tokenFile: ___, ...sections }: Config): Map<string, string> {
  const values = new Map<string, string>();
  const read = (value: unknown, key: string): void => {
    const isTable = isObject(value) && !whole.has(key);
    if (!isTable) values.set(spellings[key] ?? key, JSON.stringify(value ?? null));
    else
      for (const [name, inner] of Object.entries(value)) {
        const part = snakeCase(name);
        read(inner, key === "" ? part : `${key}.${part}`);
      }
  };
  read(sections, "");
  return values;
}

/** Objects that the file writes as one value. */
const whole: ReadonlySet<string> = new Set(["api.listen", "apps.build_env"]);
