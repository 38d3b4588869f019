/** When the images of services are pulled. Source: `pull_policy` in the compose specification. */
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { recordOf } from "./compose-values.ts";

/** How old the last pull may be before the next one; infinite: only a missing image is pulled. */
export type PullPolicy = "never" | { readonly maxAgeMs: number };

/** An image that a project gets from a registry. */
export interface ImagePull {
  /** The first service that uses it. */
  readonly service: string;
  readonly reference: string;
  readonly policy: PullPolicy;
}

const unitsMs: Readonly<Record<string, number>> = {
  ...{ w: 7 * 86_400_000, d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000 },
};

const whenMissing: PullPolicy = { maxAgeMs: Infinity };

/** Compose treats unknown values, and `build` without a build section, as `missing`. */
export function readPullPolicy(text: string): PullPolicy {
  if (text === "never") return "never";
  if (text === "always") return { maxAgeMs: 0 };
  if (text === "daily") return { maxAgeMs: 86_400_000 };
  if (text === "weekly") return { maxAgeMs: 7 * 86_400_000 };
  const [, duration] = /^every_((?:\d+[wdhms])+)$/.exec(text) ?? [];
  if (duration === undefined) return whenMissing;
  const parts = [...duration.matchAll(/(\d+)([wdhms])/g)];
  return {
    maxAgeMs: parts.reduce((sum, [, count, unit = ""]) => sum + Number(count) * (unitsMs[unit] ?? 0), 0),
  };
}

/** The policy for services that share an image: the one that pulls more often. */
export function strongerPolicy(a: PullPolicy | undefined, b: PullPolicy): PullPolicy {
  if (a === undefined || a === "never") return b;
  if (b === "never") return a;
  return a.maxAgeMs <= b.maxAgeMs ? a : b;
}

/** Times of the last pulls of an app's images with a maximum age, in a file of the daemon. */
export class PullTimes {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async isOlder(reference: string, maxAgeMs: number): Promise<boolean> {
    const pulledAtMs = (await this.#read())[reference];
    const ageMs = Date.now() - Number(pulledAtMs ?? -Infinity);
    // After a change of the clock, the time may be in the future.
    return !(ageMs >= 0 && ageMs < maxAgeMs);
  }

  async record(reference: string): Promise<void> {
    const times = { ...(await this.#read()), [reference]: Date.now() };
    await mkdir(dirname(this.#path), { recursive: true, mode: 0o700 });
    await writeFile(`${this.#path}.new`, JSON.stringify(times), { mode: 0o600 });
    await rename(`${this.#path}.new`, this.#path);
  }

  async #read(): Promise<JsonObject> {
    try {
      return recordOf(JSON.parse(await readFile(this.#path, "utf8")) as JsonValue);
    } catch {
      // Without times, the next start pulls.
      return {};
    }
  }
}
