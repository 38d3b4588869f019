/** What was found newer than an app, when it was last looked for. In memory: the next look is never further than a day. */
import type { AppRecord } from "./app-record.ts";

export class FoundUpdates {
  /** By app: whereto, and from what. */
  readonly #found = new Map<string, { readonly of: string; readonly version: string }>();
  #revision = 0;

  /** Another number whenever one may be another. */
  get revision(): number {
    return this.#revision;
  }

  of(app: AppRecord): string | undefined {
    const found = this.#found.get(app.id);
    // An upgrade has taken it up meanwhile, or another app has the id.
    return found !== undefined && found.of === releaseOf(app) ? found.version : undefined;
  }

  /** @param version undefined: nothing is newer */
  set(app: AppRecord, version: string | undefined): void {
    const before = this.#found.get(app.id);
    if (before?.version === version && (version === undefined || before?.of === releaseOf(app))) return;
    if (version === undefined) this.#found.delete(app.id);
    else this.#found.set(app.id, { of: releaseOf(app), version });
    this.#revision += 1;
  }

  /** @param ids of the apps that there are */
  keepOnly(ids: ReadonlySet<string>): void {
    for (const id of this.#found.keys()) if (!ids.has(id)) this.#found.delete(id);
  }
}

/** A directory has no commit. */
function releaseOf({ origin, version }: AppRecord): string {
  return `${origin.url} ${origin.commit} ${version}`;
}
