/**
 * User names for display. A lookup may start a process and take long, so each uid is looked up at most once a minute,
 * even if it has no name.
 */

const cacheMs = 60_000;
const maxCached = 1024;

export class UserNames {
  readonly #lookUp: (uid: number) => Promise<string>;
  readonly #now: () => number;
  readonly #cache = new Map<number, { readonly untilMs: number; readonly name: Promise<string> }>();

  /** @param now milliseconds */
  constructor(lookUp: (uid: number) => Promise<string>, now: () => number) {
    this.#lookUp = lookUp;
    this.#now = now;
  }

  /** Empty if the host has no name for the uid. Never rejects. */
  of(uid: number): Promise<string> {
    const cached = this.#cache.get(uid);
    if (cached !== undefined && cached.untilMs > this.#now()) return cached.name;
    if (this.#cache.size >= maxCached) this.#cache.clear();
    const name = this.#find(uid);
    this.#cache.set(uid, { untilMs: this.#now() + cacheMs, name });
    return name;
  }

  async #find(uid: number): Promise<string> {
    try {
      return await this.#lookUp(uid);
    } catch {
      return "";
    }
  }
}
