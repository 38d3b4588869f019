/** Creates the backups that policies require, a few at a time. The scheduler runs it every minute. */
import type { AppRecord } from "../../apps/records/app-record.ts";
import type { AppCaller } from "../../apps/records/app-registry.ts";
import { SvcError } from "../../errors.ts";
import { LongWorkLimiter } from "../../lib/long-work-limiter.ts";
import { isDue, viewMinute } from "../../triggers/matcher.ts";
import type { Zones } from "../../triggers/zone.ts";
import { onShareOf, rootShare } from "../../lib/share-owner.ts";
import type { BackupStates } from "./backup-states.ts";

/** More backups at a time would only compete for disk and CPU. */
const limits = { root: 2, users: 2, perUser: 1 };
const minutesPerHour = 60;

export interface PolicyPassOptions {
  apps: { all(): Promise<readonly AppRecord[]> };
  states: BackupStates;
  zones: Zones;
  /** The caller for an app's backup. */
  callerOf: (app: AppRecord) => AppCaller;
  /** Creates a backup by an app's policy. */
  make: (app: AppRecord, signal: AbortSignal) => Promise<void>;
  /** Records when an app's backup was started, unix milliseconds. */
  recordAttempt: (appId: string, atMs: number | null) => Promise<void>;
  /** Called every hour. */
  settle: () => Promise<void>;
  /** Unix milliseconds. */
  now: () => number;
  /** Milliseconds that a backup uses one of the slots shared by users. Default: 30,000. */
  sharedMs?: number;
}

export interface BackupFailure {
  readonly app: string;
  readonly error: unknown;
}

export class PolicyPass {
  readonly #options: PolicyPassOptions;
  /** Apps with a running or waiting backup, which is not started again. */
  readonly #pending = new Set<string>();
  readonly #slots: LongWorkLimiter;

  constructor(options: PolicyPassOptions) {
    this.#options = options;
    this.#slots = new LongWorkLimiter({ ...limits, sharedMs: options.sharedMs });
  }

  /**
   * Creates the backups that are due in the minute. A failed backup does not affect the others.
   * @param minuteMs its start, unix milliseconds
   * @param signal aborts when the daemon stops
   * @returns the apps whose backup failed
   */
  async run(minuteMs: number, signal: AbortSignal): Promise<readonly BackupFailure[]> {
    const { apps, states, zones, settle } = this.#options;
    // An unresponsive storage does not delay backups.
    const settling = Math.floor(minuteMs / 60_000) % minutesPerHour === 0 ? settle() : undefined;
    const view = viewMinute(zones.local(), minuteMs);
    const due = (await apps.all()).filter((app) => {
      const { trigger } = states.policyOf(app);
      if (trigger === undefined || this.#pending.has(app.id)) return false;
      return isDue(trigger, view) || states.isMissed(app);
    });
    const failures = await Promise.all(due.map((app) => this.#backUp(app, signal)));
    await settling;
    return failures.flat();
  }

  async #backUp(app: AppRecord, signal: AbortSignal): Promise<BackupFailure[]> {
    this.#pending.add(app.id);
    try {
      const { root, uid } = this.#options.callerOf(app);
      const share = root ? rootShare : uid;
      using _slot = await this.#slots.acquire(share, signal);
      signal.throwIfAborted();
      await onShareOf(share, () => this.#make(app, signal));
      return [];
    } catch (error) {
      return [{ app: app.id, error: error instanceof SvcError ? error.message : error }];
    } finally {
      this.#pending.delete(app.id);
    }
  }

  /** Recorded before the start: a backup that crashes the daemon must not do so at each start. */
  async #make(app: AppRecord, signal: AbortSignal): Promise<void> {
    const { states, make, recordAttempt, now } = this.#options;
    const before = states.triedAtMs(app);
    await recordAttempt(app.id, now());
    try {
      await make(app, signal);
    } catch (error) {
      const isForLater = signal.aborted || (error instanceof SvcError && error.reason === "app_busy");
      if (isForLater) await recordAttempt(app.id, before);
      throw error;
    }
  }
}
