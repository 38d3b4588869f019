/** Checks for updates: once a day for all apps, and on request for the caller's apps. */
import { SvcError } from "../../errors.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Log } from "../../lib/log.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import { CoalescedRequests } from "../../lib/coalesced-requests.ts";
import type { PackageResolver } from "../../packages/package-resolver.ts";
import type { SvcRelease } from "../../packages/sources/source-index.ts";
import type { RuntimeImage } from "../../runtimes/capabilities.ts";
import type { AppRecord } from "../records/app-record.ts";
import type { AppCaller } from "../records/app-registry.ts";
import type { AppFinder } from "../records/app-finder.ts";
import type { AppReports } from "../records/app-reports.ts";
import type { FoundUpdates } from "../records/found-updates.ts";
import type { InstallLimiter } from "./install-limiter.ts";

export interface AppUpdate {
  readonly id: string;
  readonly version: string;
  /** The version that an upgrade would install; undefined if there is none. */
  readonly availableVersion?: string | undefined;
  /** References of images that differ in their registry. */
  readonly outdatedImages: readonly string[];
  /** Why the check failed. */
  readonly problem?: string | undefined;
}

/** Available updates. */
export interface Updates {
  readonly apps: AppUpdate[];
  /** A newer version of svc. */
  readonly svc?: SvcRelease | undefined;
}

export interface AppUpdatesOptions {
  readonly finder: Pick<AppFinder, "all" | "find" | "visibleIds">;
  readonly reports: Pick<AppReports, "image">;
  readonly installLimiter: Pick<InstallLimiter, "take">;
  readonly packages: Pick<PackageResolver, "newerVersion" | "newerSvc">;
  /** Version of this svc. */
  readonly version: string;
  readonly found: FoundUpdates;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  /** 0 to 1; spreads the checks of hosts that boot at the same time. Default: random. */
  readonly random?: () => number;
}

const minuteMs = 60_000;
/** The first check is within an hour after the start, when the boot is finished. */
const first = { leastMs: 5 * minuteMs, mostMs: 60 * minuteMs };
const daily = { leastMs: 23 * 60 * minuteMs, mostMs: 25 * 60 * minuteMs };
/** A check for one user, or the daily check. */
const parallelChecks = 4;
const checkTimeoutMs = 30_000;
/** Maximum number of users with a shared running check. */
const maxUsers = 64;

export class AppUpdates implements Disposable {
  readonly #options: AppUpdatesOptions;
  readonly #checks = new Map<string, CoalescedRequests<undefined, Updates>>();
  readonly #stop = new AbortController();
  #timer: Disposable | undefined;

  constructor(options: AppUpdatesOptions) {
    this.#options = options;
  }

  /** Starts the daily check. */
  start(): void {
    this.#plan(first);
  }

  /** Updates of the caller's apps, by ID, and of svc itself. */
  async check(caller: AppCaller, signal: AbortSignal): Promise<Updates> {
    const key = caller.root ? "root" : String(caller.uid);
    let checks = this.#checks.get(key);
    if (checks === undefined) {
      if (this.#checks.size >= maxUsers) this.#checks.clear();
      checks = new CoalescedRequests(async (_, ended) => {
        // A check fetches like an install, so it needs a slot.
        using _slot = await this.#options.installLimiter.take(caller, { signal: ended });
        const { packages, version } = this.#options;
        const { uid } = caller;
        const [apps, svc] = await Promise.all([
          this.#checkApp(caller, ended),
          packages.newerSvc(version, uid, { signal: ended }),
        ]);
        return { apps, svc };
      });
      this.#checks.set(key, checks);
    }
    return checks.request(undefined, signal);
  }

  #plan({ leastMs, mostMs }: typeof first): void {
    const { clock, random = Math.random } = this.#options;
    this.#timer = clock.setTimer(leastMs + random() * (mostMs - leastMs), () => void this.#pass());
  }

  async #pass(): Promise<void> {
    const { log } = this.#options;
    try {
      await this.#checkApp(undefined, this.#stop.signal);
    } catch (error) {
      if (!this.#stop.signal.aborted) log.warn({ err: error }, "failed to check for updates of apps");
    }
    if (!this.#stop.signal.aborted) this.#plan(daily);
  }

  /** @param caller undefined: all apps */
  async #checkApp(caller: AppCaller | undefined, signal: AbortSignal): Promise<AppUpdate[]> {
    const { finder, found } = this.#options;
    const all = await finder.all();
    found.retain(new Set(all.map(({ id }) => id)));
    const visible = caller && finder.visibleIds(caller);
    const meant = all.filter(({ id }) => visible?.has(id) ?? true).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    return mapBounded(meant, parallelChecks, async (app) => {
      signal.throwIfAborted();
      return this.#findUpdate(
        app,
        AbortSignal.any([signal, this.#stop.signal, AbortSignal.timeout(checkTimeoutMs)]),
      );
    });
  }

  async #findUpdate(app: AppRecord, signal: AbortSignal): Promise<AppUpdate> {
    const { finder, reports, packages, found } = this.#options;
    const { id, version, ownerUid: uid } = app;
    let availableVersion: string | undefined;
    try {
      availableVersion = await packages.newerVersion(app, uid, { signal });
      found.set(app, availableVersion);
      const now = await finder.find(id, { uid, root: false, ownerUid: uid });
      const image = await reports.image(now, true, signal);
      const problem = unansweredIn(image);
      return {
        ...{ id, version, availableVersion, outdatedImages: outdatedIn(image) },
        ...(problem !== "" && { problem }),
      };
    } catch (error) {
      const problem = error instanceof SvcError ? error.message : "the source did not respond in time";
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

/** Which registries failed, and why; empty if all responded. */
function unansweredIn({ isUnanswered, freshnessReason = "", services = [] }: RuntimeImage): string {
  const own = isUnanswered === true ? [freshnessReason] : [];
  const all = [...own, ...services.map(({ image }) => unansweredIn(image))];
  return [...new Set(all)].filter((reason) => reason !== "").join("; ");
}
