/** Newer versions that the last check found. Kept in memory, because the next check is at most one day away. */
import type { AppRecord } from "./app-record.ts";

export class FoundUpdates {
  /** By app: the newer version, and the version that it was compared with. */
  readonly #found = new Map<string, { readonly of: string; readonly version: string }>();
  #revision = 0;

  /** Changes whenever an entry may have changed. */
  get revision(): number {
    return this.#revision;
  }

  of(app: AppRecord): string | undefined {
    const found = this.#found.get(app.id);
    // The app was upgraded in the meantime, or another app has the ID.
    return found !== undefined && found.of === releaseOf(app) ? found.version : undefined;
  }

  /** @param version undefined: there is no newer version */
  set(app: AppRecord, version: string | undefined): void {
    const before = this.#found.get(app.id);
    if (before?.version === version && (version === undefined || before?.of === releaseOf(app))) return;
    if (version === undefined) this.#found.delete(app.id);
    else this.#found.set(app.id, { of: releaseOf(app), version });
    this.#revision += 1;
  }

  /** @param ids IDs of the installed apps */
  retain(ids: ReadonlySet<string>): void {
    for (const id of this.#found.keys()) if (!ids.has(id)) this.#found.delete(id);
  }
}

/** Packages from directories have no commit. */
function releaseOf({ origin, version }: AppRecord): string {
  return `${origin.url} ${origin.commit} ${version}`;
}
