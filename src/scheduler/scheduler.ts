/** What runs jobs, put together: for the daemon with the clock that fires them, for a command of its own without. */
import type { Apps } from "../apps/apps.ts";
import type { Backups } from "../backups/backups.ts";
import type { PolicyPass } from "../backups/policy-pass.ts";
import type { Identities } from "../identity/identities.ts";
import type { Clock } from "../lib/clock.ts";
import { UserPlaces } from "../lib/user-places.ts";
import { storeIdOf } from "../store/store-id.ts";
import type { Store } from "../store/store.ts";
import { createAppUpdateAction } from "./actions/app-update.ts";
import { createBackupAction } from "./actions/backup.ts";
import { createBackupVerifyAction } from "./actions/backup-verify.ts";
import { createHttpAction, type HttpOptions } from "./actions/http.ts";
import { createLifecycleAction } from "./actions/app-lifecycle.ts";
import type { HostReboot } from "../host/reboot.ts";
import { createNodeRebootAction } from "./actions/node-reboot.ts";
import { createShellAction, startBounds } from "./actions/shell.ts";
import type { Actions, PlainAction } from "./actions/action.ts";
import { DueJobs, type JobWait } from "./clock/due-jobs.ts";
import { EventJobs } from "./clock/event-jobs.ts";
import { Evaluator } from "./clock/evaluator.ts";
import { createJitter } from "./clock/jitter.ts";
import type { JobOwners } from "./jobs/job-owners.ts";
import type { JobRegistry } from "./jobs/job-registry.ts";
import type { JobKey } from "./jobs/job.ts";
import type { RunLog } from "./runs/run-log.ts";
import { runBounds, Runner } from "./runs/runner.ts";
import { SkipCounts } from "./runs/skip-counts.ts";
import type { Zones } from "./trigger/zone.ts";
import type { EventLog } from "../events/event-log.ts";
import type { Log } from "../lib/log.ts";

export interface SchedulerOptions {
  store: Store;
  jobs: JobRegistry;
  owners: JobOwners;
  runs: RunLog;
  zones: Zones;
  apps: Apps;
  identities: Identities;
  lookup: HttpOptions["lookup"];
  reboot: HostReboot;
  policyPass: Pick<PolicyPass, "run">;
  backups: Backups;
  events: Pick<EventLog, "listen">;
  clock: Clock;
  log: Log;
}

export class Scheduler implements AsyncDisposable {
  readonly runner: Runner;
  /** What may be done without a job around it, too. */
  readonly plainActions: Readonly<Record<"shell" | "http", PlainAction>>;
  readonly #options: SchedulerOptions;
  readonly #evaluation = new AsyncDisposableStack();
  readonly #subscription: Disposable;
  readonly #room: UserPlaces;
  /** The daemon's own uid is its root context (D10). */
  readonly #isRoot: (ownerUid: number) => boolean;
  #due: DueJobs | undefined;

  constructor(options: SchedulerOptions) {
    const { store, jobs, owners, runs, clock, identities, apps, lookup, log } = options;
    this.#options = options;
    this.#isRoot = (ownerUid) => ownerUid === identities.selfUid || ownerUid === 0;
    const isRoot = this.#isRoot;
    this.plainActions = {
      shell: createShellAction({ identities, apps, starts: new UserPlaces("starts", isRoot, startBounds) }),
      http: createHttpAction({ lookup }),
    };
    this.#room = new UserPlaces("runs", isRoot, runBounds);
    this.runner = new Runner({
      jobs,
      owners,
      runs,
      actions: createActions(options, this.plainActions),
      room: this.#room,
      clock,
      isRoot,
      log,
    });
    this.#subscription = store.onChange(() => this.runner.endOrphans());
  }

  /** Fires jobs from now on. Closes first what processes that died left open. @throws what the store throws */
  async start(): Promise<void> {
    const { store, jobs, owners, runs, zones, policyPass, events, clock, log } = this.#options;
    await runs.start();
    await owners.nameAll(store, jobs);
    const skips = this.#evaluation.use(new SkipCounts({ runs, clock, log }));
    const due = this.#evaluation.use(
      new DueJobs({
        jobs,
        owners,
        runner: this.runner,
        room: this.#room,
        skips,
        clock,
        jitter: createJitter(storeIdOf(store)),
        log,
      }),
    );
    this.#due = due;
    const evaluator = this.#evaluation.use(
      new Evaluator({ jobs, zones, due, runs, skips, backups: policyPass, clock, log }),
    );
    evaluator.start();
    this.#evaluation.use(new EventJobs({ jobs, due, events, isRoot: this.#isRoot, clock }));
  }

  /** What a job that is due waits for. */
  waitOf(key: JobKey): JobWait | undefined {
    return this.#due?.waitOf(key);
  }

  /** Fires nothing any more; what runs goes on. */
  async stop(): Promise<void> {
    await this.#evaluation.disposeAsync();
  }

  /** Fires nothing any more, and ends what runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.runner[Symbol.asyncDispose]();
    this.#subscription[Symbol.dispose]();
  }
}

function createActions(
  { apps, backups, reboot }: SchedulerOptions,
  plain: Record<"shell" | "http", PlainAction>,
): Actions {
  return {
    node_reboot: createNodeRebootAction(reboot),
    app_start: createLifecycleAction(apps, "startApp"),
    app_stop: createLifecycleAction(apps, "stopApp"),
    app_restart: createLifecycleAction(apps, "restartApp"),
    app_update: createAppUpdateAction(apps),
    backup: createBackupAction(backups),
    backup_verify: createBackupVerifyAction(backups),
    ...plain,
  };
}
