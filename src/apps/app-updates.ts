/** Looks for what is newer than what is installed: once a day for everybody, and whenever somebody asks for their own. */
import { SvcError } from "../errors.ts";
import type { Clock } from "../lib/clock.ts";
import type { Log } from "../lib/log.ts";
import { mapBounded } from "../lib/map-bounded.ts";
import { SharedRounds } from "../lib/shared-rounds.ts";
import type { PackageResolver } from "../packages/package-resolver.ts";
import type { SvcRelease } from "../packages/source-index.ts";
import type { RuntimeImage } from "../runtimes/runtime.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import type { Apps } from "./apps.ts";
import type { FoundUpdates } from "./found-updates.ts";

export interface AppUpdate {
  readonly id: string;
  readonly version: string;
  /** Whereto an upgrade would go; undefined where nothing is newer. */
  readonly availableVersion?: string | undefined;
  /** References of images that are another in their registry. */
  readonly outdatedImages: readonly string[];
  /** Why it is not known. */
  readonly problem?: string | undefined;
}

/** What is newer than what runs here. */
export interface Updates {
  readonly apps: AppUpdate[];
  /** Than svc itself. */
  readonly svc?: SvcRelease | undefined;
}

export interface AppUpdatesOptions {
  readonly apps: Pick<Apps, "all" | "visibleIds" | "image" | "takeTurn">;
  readonly packages: Pick<PackageResolver, "newerVersion" | "newerSvc">;
  /** Of this svc. */
  readonly version: string;
  readonly found: FoundUpdates;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  /** From 0 up to 1: hosts that boot together do not ask together. Default: by chance. */
  readonly random?: () => number;
}

const minuteMs = 60_000;
/** After a start it is looked for within the first hour, when what a boot brings up is done. */
const first = { leastMs: 5 * minuteMs, mostMs: 60 * minuteMs };
const daily = { leastMs: 23 * 60 * minuteMs, mostMs: 25 * 60 * minuteMs };
/** Of one user, or of the daily pass. */
const askedAtOnce = 4;
const askTimeoutMs = 30_000;
/** Users whose looks are shared among those who ask at a time. */
const maxUsers = 64;

export class AppUpdates implements Disposable {
  readonly #options: AppUpdatesOptions;
  readonly #rounds = new Map<string, SharedRounds<undefined, Updates>>();
  readonly #stop = new AbortController();
  #timer: Disposable | undefined;

  constructor(options: AppUpdatesOptions) {
    this.#options = options;
  }

  /** Begins to look once a day. */
  start(): void {
    this.#plan(first);
  }

  /** The caller's apps by id, as they are now, and svc itself. */
  async look(caller: AppCaller, signal: AbortSignal): Promise<Updates> {
    const key = caller.root ? "root" : String(caller.uid);
    let rounds = this.#rounds.get(key);
    if (rounds === undefined) {
      if (this.#rounds.size >= maxUsers) this.#rounds.clear();
      rounds = new SharedRounds(async (_, ended) => {
        // It fetches, as an install does.
        using _turn = await this.#options.apps.takeTurn(caller, { signal: ended });
        const { packages, version } = this.#options;
        const { uid } = caller;
        const [apps, svc] = await Promise.all([
          this.#lookAt(caller, ended),
          packages.newerSvc(version, uid, { signal: ended }),
        ]);
        return { apps, svc };
      });
      this.#rounds.set(key, rounds);
    }
    return rounds.join(undefined, signal);
  }

  #plan({ leastMs, mostMs }: typeof first): void {
    const { clock, random = Math.random } = this.#options;
    this.#timer = clock.setTimer(leastMs + random() * (mostMs - leastMs), () => void this.#pass());
  }

  async #pass(): Promise<void> {
    const { log } = this.#options;
    try {
      await this.#lookAt(undefined, this.#stop.signal);
    } catch (error) {
      if (!this.#stop.signal.aborted)
        log.warn({ err: error }, "newer versions of apps could not be looked for");
    }
    if (!this.#stop.signal.aborted) this.#plan(daily);
  }

  /** @param caller undefined: for all */
  async #lookAt(caller: AppCaller | undefined, signal: AbortSignal): Promise<AppUpdate[]> {
    const { apps, found } = this.#options;
    const all = await apps.all();
    found.keepOnly(new Set(all.map(({ id }) => id)));
    const visible = caller && apps.visibleIds(caller);
    const meant = all.filter(({ id }) => visible?.has(id) ?? true).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    return mapBounded(meant, askedAtOnce, async (app) => {
      signal.throwIfAborted();
      return this.#lookFor(
        app,
        AbortSignal.any([signal, this.#stop.signal, AbortSignal.timeout(askTimeoutMs)]),
      );
    });
  }

  async #lookFor(app: AppRecord, signal: AbortSignal): Promise<AppUpdate> {
    const { apps, packages, found } = this.#options;
    const { id, version, ownerUid: uid } = app;
    let availableVersion: string | undefined;
    try {
      availableVersion = await packages.newerVersion(app, uid, { signal });
      found.set(app, availableVersion);
      const image = await apps.image(id, true, { uid, root: false, ownerUid: uid }, signal);
      const problem = unansweredIn(image);
      return {
        ...{ id, version, availableVersion, outdatedImages: outdatedIn(image) },
        ...(problem !== "" && { problem }),
      };
    } catch (error) {
      const problem = error instanceof SvcError ? error.message : "it could not be asked in time";
      return { id, version, availableVersion, outdatedImages: [], problem };
    }
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    this.#timer?.[Symbol.dispose]();
  }
}

function outdatedIn({ reference = "", freshness, services = [] }: RuntimeImage): string[] {
  const own = freshness === "outdated" ? [reference] : [];
  return [...own, ...services.flatMap(({ image }) => outdatedIn(image))];
}

/** What registries did not say, and why; empty where all have answered. */
function unansweredIn({ isUnanswered, freshnessReason = "", services = [] }: RuntimeImage): string {
  const own = isUnanswered === true ? [freshnessReason] : [];
  const all = [...own, ...services.map(({ image }) => unansweredIn(image))];
  return [...new Set(all)].filter((reason) => reason !== "").join("; ");
}
