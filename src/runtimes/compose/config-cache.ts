/** Caches the output of `compose config`, which takes longer than the rest of a start, in memory and for the next daemon. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

/** The cached output of compose for an app's checkout. */
export interface CachedConfig {
  /** Digest of everything that the output depends on. */
  readonly key: string;
  readonly text: string;
  /** The directory of the copies that compose read, which is in front of the paths in the output. */
  readonly copies: string;
  /** Values of `.env` that the output lacks: the content of secrets and configs. */
  readonly values: Readonly<Record<string, string>>;
}

/** Maximum size of a cached output with its values, in characters; most projects are far smaller. */
const maxCachedConfig = 64 * 1024;

export class ConfigCache {
  readonly #directory: string;
  /** By app ID. */
  readonly #configs = new Map<string, CachedConfig>();

  /** @param directory contains a directory per app */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The cached output for these inputs; `undefined` without one. */
  async find(id: string, key: string): Promise<CachedConfig | undefined> {
    const known = this.#configs.get(id) ?? (await this.#read(id));
    if (known?.key !== key) return undefined;
    this.#configs.set(id, known);
    return known;
  }

  async store(id: string, config: CachedConfig): Promise<void> {
    const values = Object.entries(config.values).flat();
    if (values.reduce((sum, { length }) => sum + length, config.text.length) > maxCachedConfig) {
      this.#configs.delete(id);
      return;
    }
    this.#configs.set(id, config);
    const path = this.#path(id);
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await writeFile(path, JSON.stringify(config), { mode: 0o600 });
    } catch {
      // The next daemon runs compose again.
    }
  }

  /** Forgets the output in memory; the caller removes the app's directory. */
  forget(id: string): void {
    this.#configs.delete(id);
  }

  /** The output that an earlier daemon cached; a partial file is not valid JSON. */
  async #read(id: string): Promise<CachedConfig | undefined> {
    try {
      return JSON.parse(await readFile(this.#path(id), "utf8")) as CachedConfig;
    } catch {
      return undefined;
    }
  }

  #path(id: string): string {
    return join(this.#directory, id, "config.json");
  }
}
