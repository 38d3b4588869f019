/** Takes over what a changed configuration file says, as far as a running daemon can. */
import { CoalescedRequests } from "../lib/coalesced-requests.ts";
import { snakeCase } from "../lib/snake-case.ts";
import type { Config } from "./config.ts";

/** Keys of the configuration that a running daemon takes over, as the file spells them. */
export type ReloadableKey = "alerts" | "sources" | "apps.backup_before_upgrade" | "log.level";

export interface ConfigReloadOptions {
  /** The configuration at the daemon's start. */
  readonly config: Config;
  /** Reads the file again and checks it as a start would. */
  readonly load: () => Promise<Config>;
  readonly apply: Readonly<Record<ReloadableKey, (config: Config) => void>>;
}

/** Keys that changed, as the file spells them, in their order. */
export interface Reloaded {
  readonly applied: string[];
  readonly needsRestart: string[];
}

export class ConfigReload {
  readonly #options: ConfigReloadOptions;
  /** The effective values by key, as JSON. */
  readonly #current: Map<string, string>;
  readonly #rounds = new CoalescedRequests<undefined, Reloaded>(() => this.#reload());

  constructor(options: ConfigReloadOptions) {
    this.#options = options;
    this.#current = valuesOf(options.config);
  }

  /** One after the other; who asks while one waits shares its answer, as it reads the file after all of them asked. @throws SvcError `invalid_request` for a file that is wrong; then nothing is taken over */
  reload(): Promise<Reloaded> {
    return this.#rounds.request(undefined);
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

/** Where the file spells a key in another way than its place in the configuration says. */
const spellings: Readonly<Record<string, string>> = {
  "apps.back_up_before_upgrade": "apps.backup_before_upgrade",
};

function valuesOf({ mode: _, file: __, tokenFile: ___, ...sections }: Config): Map<string, string> {
  const values = new Map<string, string>();
  const read = (value: unknown, key: string): void => {
    const isTable = typeof value === "object" && value !== null && !Array.isArray(value) && !whole.has(key);
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

/** Objects that are one value of the file. */
const whole: ReadonlySet<string> = new Set(["api.listen", "apps.build_env"]);
