/** Recovers operations whose process ended: promised work is finished, everything else is rolled back. */
import type { Adopter } from "../adopt/adopter.ts";
import type { Installer } from "../changes/install.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { AppOperationKind } from "../../../gen/svc/v1/values.ts";
import type { Operation } from "./operations.ts";
import type { BackupHold } from "./backup-hold.ts";
import type { Remover } from "../changes/removal.ts";
import type { Restorer } from "../changes/restore.ts";
import type { AdoptionPhase, RestorePhase } from "./phases.ts";
import type { Upgrader } from "../changes/upgrade.ts";
import { patchApp, type AppRecord } from "../records/app-record.ts";
import type { AppsContext } from "../apps-context.ts";
import { isReadable } from "../records/unreadable-app.ts";
import { SvcError } from "../../errors.ts";
import { mapBounded } from "../../lib/map-bounded.ts";

export interface RecoveryOptions extends AppsContext {
  installer: Installer;
  upgrader: Upgrader;
  remover: Remover;
  lifecycle: Lifecycle;
  backupHold: BackupHold;
  restorer: Restorer;
  adopter: Adopter;
}

type RecoveryListener = (appId: string, what: string) => void;

/** Recovery of each kind of operation. */
type Way = Readonly<Record<"resume" | "undo", (operation: Operation) => Promise<unknown>>>;
type OneWay = Pick<Way, "resume"> | Pick<Way, "undo">;

/** Kinds that need the manifest, so that they can be neither finished nor rolled back for an unreadable app. */
const needsManifest: ReadonlySet<AppOperationKind> = new Set([
  "start",
  "restart",
  "repull",
  "upgrade",
  "restore",
]);

function waysOf(options: RecoveryOptions): Readonly<Record<AppOperationKind, OneWay>> {
  const { operations, registry, installer, upgrader, remover, lifecycle, backupHold, restorer } = options;
  const { adopter } = options;
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
    adopt: { undo: (operation) => adopter.undo(operation) },
    upgrade: { undo: (operation) => upgrader.restore(operation) },
    remove: { resume: (operation) => remover.finish(operation) },
    stop: { resume: ifThere((operation) => lifecycle.finishStop(operation)) },
    start: { resume: ifThere((operation) => lifecycle.finishStart(operation)) },
    restart: { resume: restart },
    repull: { resume: (operation) => (operation.phase === "pull" ? end(operation) : restart(operation)) },
    backup: { undo: (operation) => backupHold.release(operation) },
    restore: { undo: (operation) => restorer.settle(operation) },
    settings: { undo: end },
  };
}

/** Describes the result of a recovery to people. */
function outcomeOf({ kind, phase }: Operation): string {
  const isDone =
    (kind === "restore" && phase === ("done" satisfies RestorePhase)) ||
    (kind === "adopt" && phase === ("switched" satisfies AdoptionPhase));
  if (isDone || (kind === "repull" && phase !== "pull")) return "the daemon finished it after its restart";
  return "the daemon undid it after its restart";
}

/** Apps are recovered in parallel, because containers take seconds and an engine may hang. */
const recoveredAtOnce = 8;

export class Recovery {
  readonly #options: RecoveryOptions;
  readonly #ways: Readonly<Record<AppOperationKind, OneWay>>;
  /** IDs of operations that could not be recovered, so that repeated failures are logged only once. */
  readonly #failed = new Set<number>();
  readonly #listeners: RecoveryListener[] = [];

  constructor(options: RecoveryOptions) {
    this.#options = options;
    this.#ways = waysOf(options);
  }

  /** Calls `listener` with the result when an app was recovered or could not be. */
  onRecovered(listener: RecoveryListener): void {
    this.#listeners.push(listener);
  }

  /** Recovers every app whose operation was interrupted. */
  async sweep(): Promise<void> {
    const { operations } = this.#options;
    await mapBounded(operations.all(), recoveredAtOnce, async (operation) => {
      if (!(await operations.isLive(operation))) await this.recover(operation);
    });
  }

  /** Rolls back unacknowledged work and finishes promised work. A failure is logged; the next sweep tries again. */
  async recover(operation: Operation): Promise<void> {
    const { operations, registry, log } = this.#options;
    if (!(await operations.takeOver(operation))) return;
    const { id, appId, kind, phase } = operation;
    if (!this.#failed.has(id)) {
      log.info({ appId, kind, phase }, "recovering the app of an interrupted operation");
    }
    try {
      const app = registry.get(appId);
      if (operation.unreadable !== undefined) {
        await this.#abandon(operation, app, operation.unreadable);
        return;
      }
      if (needsManifest.has(kind) && app !== undefined && !isReadable(app)) {
        await operations.end(operation);
        return;
      }
      const way = this.#ways[kind];
      await ("resume" in way ? way.resume(operation) : way.undo(operation));
      this.#failed.delete(id);
      this.#report(appId, outcomeOf(operation));
    } catch (error) {
      if (error instanceof SvcError && error.reason === "start_failed") return;
      if (this.#failed.has(id)) return;
      this.#failed.add(id);
      this.#report(appId, "undoing it failed; the daemon tries again");
      // Recovery has to wait for the engine. Without a daemon, each command recovers, and would print the error.
      const level = error instanceof SvcError && error.code === "unavailable" ? "warn" : "error";
      log[level]({ err: error, appId, kind, phase }, "failed to recover the app of an interrupted operation");
    } finally {
      operations.release(operation);
    }
  }

  #report(appId: string, what: string): void {
    for (const listener of this.#listeners) listener(appId, what);
  }

  /** The operation's phase is unknown, so its leftovers stay, and the app's owner decides. */
  async #abandon(operation: Operation, app: AppRecord | undefined, row: { kind: string }): Promise<void> {
    const { operations, log } = this.#options;
    const { appId, phase } = operation;
    // The row is removed with the operation.
    log.error({ appId, phase, row }, "abandoned an unreadable operation; its app is unchanged");
    const stateReason = `the record of the last operation (${row.kind}) is damaged: check the files of the app, then start the app, restore a backup, or remove the app`;
    await operations.end(
      operation,
      app === undefined ? [] : [patchApp(appId, { state: "FAILED", stateReason })],
    );
  }
}
