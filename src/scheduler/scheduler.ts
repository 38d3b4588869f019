/** Assembles the scheduler: with a clock for the daemon, without one for in-process commands. */
import type { Upgrader } from "../apps/changes/upgrade.ts";
import type { Lifecycle } from "../apps/lifecycle/lifecycle.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import type { Backups } from "../backups/backups.ts";
import type { PolicyPass } from "../backups/policies/policy-pass.ts";
import type { UserHelpers } from "../run-as/user-helpers.ts";
import type { Clock } from "../lib/clock.ts";
import { Limiter } from "../lib/limiter.ts";
import { storeIdOf } from "../store/store-id.ts";
import type { Store } from "../store/store.ts";
import { createAppUpdateAction } from "./actions/app-update.ts";
import { createBackupAction, createBackupVerifyAction } from "./actions/backup.ts";
import { createHttpAction, type HttpOptions } from "./actions/http.ts";
import { createLifecycleAction } from "./actions/app-lifecycle.ts";
import type { HostReboot } from "../host/reboot.ts";
import { createNodeRebootAction } from "./actions/node-reboot.ts";
import { createShellAction, startBounds } from "./actions/shell.ts";
import type { Actions, PlainAction } from "./actions/action.ts";
import { DueJobs, type JobWait, createJitter } from "./clock/due-jobs.ts";
import { EventJobs } from "./clock/event-jobs.ts";
import { Evaluator } from "./clock/evaluator.ts";
import type { JobOwners } from "./jobs/job-owners.ts";
import type { JobRegistry } from "./jobs/job-registry.ts";
import type { JobKey } from "./jobs/job.ts";
import type { RunLog } from "./runs/run-log.ts";
import { runBounds, Runner } from "./runs/runner.ts";
import { SkipCounts } from "./runs/skip-counts.ts";
import type { Zones } from "../triggers/zone.ts";
import type { EventLog } from "../observability/events/event-log.ts";
import type { Log } from "../lib/log.ts";

export interface SchedulerOptions {
  store: Store;
  jobs: JobRegistry;
  owners: JobOwners;
  runs: RunLog;
  zones: Zones;
  finder: AppFinder;
  lifecycle: Lifecycle;
  upgrader: Upgrader;
  userHelpers: UserHelpers;
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
  /** Actions that can run without a job. */
  readonly plainActions: Readonly<Record<"shell" | "http", PlainAction>>;
  readonly #options: SchedulerOptions;
  readonly #evaluation = new AsyncDisposableStack();
  readonly #subscription: Disposable;
  readonly #slots: Limiter<number>;
  /** The daemon's uid counts as root. */
  readonly #isRoot: (ownerUid: number) => boolean;
  #due: DueJobs | undefined;

  constructor(options: SchedulerOptions) {
    const { store, jobs, owners, runs, clock, userHelpers, finder, lookup, log } = options;
    this.#options = options;
    this.#isRoot = (ownerUid) => ownerUid === userHelpers.selfUid || ownerUid === 0;
    const isRoot = this.#isRoot;
    this.plainActions = {
      shell: createShellAction({
        userHelpers,
        finder,
        starts: new Limiter({ ...startBounds, isReserved: isRoot }),
      }),
      http: createHttpAction({ lookup }),
    };
    this.#slots = new Limiter({ ...runBounds, isReserved: isRoot });
    this.runner = new Runner({
      jobs,
      owners,
      runs,
      actions: createActions(options, this.plainActions),
      slots: this.#slots,
      clock,
      isRoot,
      log,
    });
    this.#subscription = store.onChange(() => this.runner.endOrphans());
  }

  /** Closes runs of dead processes, then starts firing jobs. @throws errors of the store */
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
        slots: this.#slots,
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

  /** Why a due job waits. */
  waitOf(key: JobKey): JobWait | undefined {
    return this.#due?.waitOf(key);
  }

  /** Stops firing; current runs continue. */
  async stop(): Promise<void> {
    await this.#evaluation.disposeAsync();
  }

  /** Stops firing, and stops all runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.runner[Symbol.asyncDispose]();
    this.#subscription[Symbol.dispose]();
  }
}

function createActions(
  { finder, lifecycle, upgrader, backups, reboot }: SchedulerOptions,
  plain: Record<"shell" | "http", PlainAction>,
): Actions {
  return {
    node_reboot: createNodeRebootAction(reboot),
    app_start: createLifecycleAction({ finder, lifecycle }, "start"),
    app_stop: createLifecycleAction({ finder, lifecycle }, "stop"),
    app_restart: createLifecycleAction({ finder, lifecycle }, "restart"),
    app_update: createAppUpdateAction({ finder, upgrader }),
    backup: createBackupAction(backups),
    backup_verify: createBackupVerifyAction(backups),
    ...plain,
  };
}
