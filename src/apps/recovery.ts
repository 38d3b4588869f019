/** What becomes of an operation whose process died in it (decisions 14, 18, 25; threats 45, 53). */
import type { Installer } from "./install.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { Operation } from "./operations.ts";
import type { BackupHold } from "./backup-hold.ts";
import type { Remover } from "./removal.ts";
import type { Restorer } from "./restore.ts";
import type { Upgrader } from "./upgrade.ts";
import type { AppsContext } from "./apps-context.ts";
import { SvcError } from "../errors.ts";

export interface RecoveryOptions extends AppsContext {
  installer: Installer;
  upgrader: Upgrader;
  remover: Remover;
  lifecycle: Lifecycle;
  backupHold: BackupHold;
  restorer: Restorer;
}

export class Recovery {
  readonly #options: RecoveryOptions;

  constructor(options: RecoveryOptions) {
    this.#options = options;
  }

  /** Brings every app to rest whose operation nobody executes any more. */
  async sweep(): Promise<void> {
    const { operations } = this.#options;
    for (const operation of operations.all()) {
      if (await operations.isLive(operation)) continue;
      await this.recover(operation);
    }
  }

  /** Undoes what was not acknowledged, and finishes what was promised to go on. A failure is logged; the next sweep tries again. */
  async recover(operation: Operation): Promise<void> {
    const { operations, log } = this.#options;
    if (!(await operations.adopt(operation))) return;
    const { appId, kind, phase } = operation;
    log.info(
      { appId, kind, phase },
      "an operation was left behind by a process that ended; bringing the app to rest",
    );
    try {
      await this.#settle(operation);
    } catch (error) {
      if (error instanceof SvcError && error.reason === "start_failed") return;
      log.error(
        { err: error, appId, kind, phase },
        "an operation that was left behind could not be brought to rest",
      );
    } finally {
      operations.release(operation);
    }
  }

  async #settle(operation: Operation): Promise<void> {
    const { operations, registry, installer, upgrader, remover, lifecycle, backupHold, restorer } =
      this.#options;
    const { phase } = operation;
    const isThere = registry.get(operation.appId) !== undefined;
    switch (operation.kind) {
      case "install":
        return installer.undo(operation);
      case "clone":
        return operation.detail.lockOnly === true ? operations.end(operation) : installer.undo(operation);
      case "upgrade":
        return upgrader.restore(operation);
      case "remove":
        await remover.finish(operation);
        return;
      case "stop":
        return isThere ? lifecycle.finishStop(operation) : operations.end(operation);
      case "start":
        return isThere ? lifecycle.finishStart(operation) : operations.end(operation);
      case "restart":
        return isThere ? lifecycle.finishRestart(operation) : operations.end(operation);
      case "repull":
        return isThere && phase !== "pull" ? lifecycle.finishRestart(operation) : operations.end(operation);
      case "backup":
        await backupHold.release(operation);
        return;
      case "restore":
        return restorer.settle(operation);
      case "settings":
        return operations.end(operation);
    }
  }
}
