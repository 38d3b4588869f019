/** Ends an app and all it has. Begun, it goes on to its end, across a restart of the daemon and of its engine too. */
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import type { AppRuntime } from "../runtimes/runtime.ts";
import { deleteApp, patchApp, type AppRecord } from "./app-record.ts";
import type { Operation } from "./operations.ts";
import type { AppsContext } from "./apps-context.ts";
import { isReadable } from "./unreadable-app.ts";

/** An engine that was killed or restarted is back within it; whoever asked for the removal waits no longer. */
const defaultPatienceMs = 30_000;
const retryMs = 1_000;

export class Remover {
  readonly #options: AppsContext;
  readonly #patienceMs: number;

  constructor(options: AppsContext, patienceMs = defaultPatienceMs) {
    this.#options = options;
    this.#patienceMs = patienceMs;
  }

  /**
   * Stops the app and removes it with all its data; resolves with the bytes that were freed.
   * @throws SvcError `app_busy`; `unavailable` when its engine is away, before anything is begun, or does not come back in time:
   *   then the removal goes on with the engine
   */
  async remove(app: AppRecord): Promise<number> {
    const { operations, runtimeOf, runnable, runUidOf } = this.#options;
    await runtimeOf(app).requireAnswer?.(runnable(app));
    const operation = await operations.begin({
      appId: app.id,
      kind: "remove",
      phase: "stop",
      detail: { runUid: isReadable(app) ? app.runUid : await runUidOf(app.ownerUid) },
      statements: [patchApp(app.id, { desired: "stopped" })],
    });
    const deadlineMs = performance.now() + this.#patienceMs;
    for (;;) {
      try {
        return await this.finish(operation);
      } catch (error) {
        if (operation.detail.awaitsEngine !== true || operations.isLeaving) throw error;
        if (performance.now() >= deadlineMs) {
          operations.release(operation);
          const message = `app "${app.id}" is being removed, which goes on when the container engine is back: ${(error as Error).message}`;
          throw new SvcError("unavailable", message, { cause: error });
        }
      }
      await wait(retryMs);
    }
  }

  /**
   * The rest of a removal under its lock; also what recovery does with one that was left behind. One whose engine is away stays
   * under way, and is to be finished again.
   */
  async finish(operation: Operation): Promise<number> {
    const { operations, identities, paths, registry, runtimeOf, runtimesOf, runnable } = this.#options;
    const id = operation.appId;
    const app = registry.get(id);
    try {
      if (app !== undefined && operation.detail.awaitsEngine === true) await this.#engineBack(operation, app);
      if (app !== undefined && operation.phase === "stop") {
        for (const runtime of runtimesOf(app)) await runtime.stop(runnable(app));
        await operations.enter(operation, "delete");
      }
      let freed = 0;
      if (app !== undefined)
        for (const runtime of runtimesOf(app)) freed += await runtime.remove(runnable(app));
      const uid = operation.detail.runUid ?? app?.runUid ?? identities.selfUid;
      const tree = await (await identities.tree(paths.appDir(id), uid)).destroy();
      const run = await identities.removeOwnedDir(paths.appRunDir(id), uid);
      await operations.end(operation, [deleteApp(id)]);
      return freed + tree.freedBytes + run.freedBytes;
    } catch (error) {
      // It was not the app's fault, and the next daemon goes on with it.
      if (operations.isLeaving) throw error;
      if (app !== undefined && isEngineAway(runtimeOf(app), error)) {
        await this.#awaitEngine(operation);
        throw error;
      }
      // What is left of it stays removable: the app is shown with its reason.
      await operations.end(
        operation,
        registry.get(id) === undefined
          ? []
          : [
              patchApp(id, {
                state: "FAILED",
                stateReason: "it could not be removed whole; remove it again",
              }),
            ],
      );
      throw error;
    }
  }

  async #awaitEngine(operation: Operation): Promise<void> {
    if (operation.detail.awaitsEngine === true) return;
    operation.detail.awaitsEngine = true;
    await this.#options.operations.enter(operation, operation.phase);
  }

  async #engineBack(operation: Operation, app: AppRecord): Promise<void> {
    const { operations, runtimeOf, runnable } = this.#options;
    await runtimeOf(app).requireAnswer?.(runnable(app));
    delete operation.detail.awaitsEngine;
    await operations.enter(operation, operation.phase);
  }
}

function isEngineAway(runtime: AppRuntime, error: unknown): boolean {
  return runtime.requireAnswer !== undefined && error instanceof SvcError && error.code === "unavailable";
}
