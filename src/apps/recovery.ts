/** What becomes of an operation whose process died in it (decisions 14, 18, 25; threats 45, 53). */
import type { Installer } from "./install.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { AppOperationKind } from "../../gen/svc/v1/words.ts";
import type { Operation } from "./operations.ts";
import type { BackupHold, HoldPhase } from "./backup-hold.ts";
import type { Remover } from "./removal.ts";
import type { Restorer, RestorePhase } from "./restore.ts";
import type { Upgrader } from "./upgrade.ts";
import { patchApp, type AppRecord } from "./app-record.ts";
import type { AppsContext } from "./apps-context.ts";
import { isReadable } from "./unreadable-app.ts";
import { SvcError } from "../errors.ts";
import { mapBounded } from "../lib/map-bounded.ts";

export interface RecoveryOptions extends AppsContext {
  installer: Installer;
  upgrader: Upgrader;
  remover: Remover;
  lifecycle: Lifecycle;
  backupHold: BackupHold;
  restorer: Restorer;
}

/** How what was left behind is brought to rest: what was promised goes on, all else is undone. */
type Way = Readonly<Record<"resume" | "undo", (operation: Operation) => Promise<unknown>>>;
type OneWay = (Pick<Way, "resume"> | Pick<Way, "undo">) & {
  /** The phases that leave the app half started or half stopped, and in which it is not stopped first. */
  readonly leavesHalf?: readonly string[];
};

/** What goes by the manifest: of an app whose row cannot be read it can be neither finished nor undone. */
const needsManifest: ReadonlySet<AppOperationKind> = new Set([
  "start",
  "restart",
  "repull",
  "upgrade",
  "restore",
]);

function waysOf(options: RecoveryOptions): Readonly<Record<AppOperationKind, OneWay>> {
  const { operations, registry, installer, upgrader, remover, lifecycle, backupHold, restorer } = options;
  const end = (operation: Operation): Promise<void> => operations.end(operation);
  const ifThere =
    (work: (operation: Operation) => Promise<void>) =>
    (operation: Operation): Promise<void> =>
      registry.get(operation.appId) === undefined ? end(operation) : work(operation);
  const restart = ifThere((operation) => lifecycle.finishRestart(operation));
  return {
    install: { undo: (operation) => installer.undo(operation) },
    clone: {
      undo: (operation) => (operation.detail.lockOnly === true ? end(operation) : installer.undo(operation)),
    },
    upgrade: { undo: (operation) => upgrader.restore(operation) },
    remove: { resume: (operation) => remover.finish(operation) },
    stop: { resume: ifThere((operation) => lifecycle.finishStop(operation)) },
    start: {
      resume: ifThere((operation) => lifecycle.finishStart(operation)),
      leavesHalf: ["start"],
    },
    restart: { resume: restart, leavesHalf: ["start"] },
    repull: {
      resume: (operation) => (operation.phase === "pull" ? end(operation) : restart(operation)),
      leavesHalf: ["start"],
    },
    backup: {
      undo: (operation) => backupHold.release(operation),
      leavesHalf: ["away"] satisfies HoldPhase[],
    },
    restore: {
      undo: (operation) => restorer.settle(operation),
      leavesHalf: ["swap", "done"] satisfies RestorePhase[],
    },
    settings: { undo: end },
  };
}

/** Starts and stops of containers take seconds, and an engine that hangs takes its time: no app waits for the one before. */
const recoveredAtOnce = 8;

export class Recovery {
  readonly #options: RecoveryOptions;
  readonly #ways: Readonly<Record<AppOperationKind, OneWay>>;
  /** Ids of operations that could not be brought to rest: each try is like the one before. */
  readonly #failed = new Set<number>();

  constructor(options: RecoveryOptions) {
    this.#options = options;
    this.#ways = waysOf(options);
  }

  /** Whether an app may be half of itself: a process has ended while it stopped or started it. */
  async leftHalf(appId: string): Promise<boolean> {
    const { registry, operations } = this.#options;
    const operation = registry.operationOf(appId);
    if (operation === undefined) return false;
    const { leavesHalf = [] } = this.#ways[operation.kind];
    return leavesHalf.includes(operation.phase) && !(await operations.isLive(operation));
  }

  /** Brings every app to rest whose operation nobody executes any more. */
  async sweep(): Promise<void> {
    const { operations } = this.#options;
    await mapBounded(operations.all(), recoveredAtOnce, async (operation) => {
      if (!(await operations.isLive(operation))) await this.recover(operation);
    });
  }

  /** Undoes what was not acknowledged, and finishes what was promised to go on. A failure is logged; the next sweep tries again. */
  async recover(operation: Operation): Promise<void> {
    const { operations, registry, log } = this.#options;
    if (!(await operations.adopt(operation))) return;
    const { id, appId, kind, phase } = operation;
    if (!this.#failed.has(id)) {
      log.info({ appId, kind, phase }, "an operation was left behind; bringing the app to rest");
    }
    try {
      const app = registry.get(appId);
      if (operation.unreadable !== undefined) {
        await this.#giveUp(operation, app, operation.unreadable);
        return;
      }
      if (needsManifest.has(kind) && app !== undefined && !isReadable(app)) {
        await operations.end(operation);
        return;
      }
      const way = this.#ways[kind];
      await ("resume" in way ? way.resume(operation) : way.undo(operation));
      this.#failed.delete(id);
    } catch (error) {
      if (error instanceof SvcError && error.reason === "start_failed") return;
      if (this.#failed.has(id)) return;
      this.#failed.add(id);
      log.error(
        { err: error, appId, kind, phase },
        "an operation that was left behind could not be brought to rest",
      );
    } finally {
      operations.release(operation);
    }
  }

  /** How far it came and what it would have needed is not known: what it left stays, for its people to decide on. */
  async #giveUp(operation: Operation, app: AppRecord | undefined, row: { kind: string }): Promise<void> {
    const { operations, log } = this.#options;
    const { appId, phase } = operation;
    // The row goes with the operation.
    log.error({ appId, phase, row }, "an operation that cannot be read is given up; its app stays as it is");
    const stateReason = `what svc keeps of its last operation (${row.kind}) is damaged: see what is there, then start it, restore a backup, or remove it`;
    await operations.end(
      operation,
      app === undefined ? [] : [patchApp(appId, { state: "FAILED", stateReason })],
    );
  }
}
