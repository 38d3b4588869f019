/** Removes an app and all its data. Once started, a removal is finished even across restarts of the daemon and the engine. */
import { basename, dirname } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import { deleteApp, patchApp, type AppRecord } from "../records/app-record.ts";
import type { Operation } from "../lifecycle/operations.ts";
import type { RemovalPhase } from "../lifecycle/phases.ts";
import { requireAccess } from "../records/app-directory.ts";
import type { AppsContext } from "../apps-context.ts";
import { isReadable } from "../records/unreadable-app.ts";

/** How long the caller waits for an engine that was killed or restarted. */
const defaultPatienceMs = 30_000;
const retryMs = 1_000;
const removeAttempts = 5;
const removeRetryMs = 200;

export class Remover {
  readonly #options: AppsContext;
  readonly #patienceMs: number;

  constructor(options: AppsContext, patienceMs = defaultPatienceMs) {
    this.#options = options;
    this.#patienceMs = patienceMs;
  }

  /**
   * Stops the app and removes it with all its data; resolves to the number of freed bytes.
   * @throws SvcError `app_busy`; `unavailable` if its engine cannot be reached before the start, or does not return in time;
   *   in the second case the removal continues when the engine returns
   */
  async remove(app: AppRecord): Promise<number> {
    const { operations, runtimeOf, runnable, runUidOf } = this.#options;
    await runtimeOf(app).engine?.requireResponse(runnable(app));
    if (isReadable(app)) await requireAccess(this.#options, app, "removed");
    const operation = await operations.begin({
      appId: app.id,
      kind: "remove",
      phase: "stop" satisfies RemovalPhase,
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
   * The rest of a removal under its lock; recovery uses it, too. If the engine cannot be reached, the operation stays and must be
   * finished later.
   */
  async finish(operation: Operation): Promise<number> {
    const { operations, userHelpers, paths, registry, runtimeOf, runtimesOf, runnable } = this.#options;
    const id = operation.appId;
    const app = registry.get(id);
    try {
      if (app !== undefined && operation.detail.awaitsEngine === true)
        await this.#onEngineBack(operation, app);
      if (app !== undefined && operation.phase === ("stop" satisfies RemovalPhase)) {
        for (const runtime of runtimesOf(app)) await runtime.stop(runnable(app));
        await operations.enter(operation, "delete" satisfies RemovalPhase);
      }
      let freed = 0;
      if (app !== undefined)
        for (const runtime of runtimesOf(app)) freed += await runtime.remove(runnable(app));
      const uid = operation.detail.runUid ?? app?.runUid ?? userHelpers.selfUid;
      const tree = await this.#persist(async () => (await userHelpers.tree(paths.appDir(id), uid)).destroy());
      const run = await this.#persist(() => userHelpers.removeOwnedDir(paths.appRunDir(id), uid));
      if (app !== undefined) await removeAdoptedPackage(this.#options, app);
      await operations.end(operation, [deleteApp(id)]);
      return freed + tree.freedBytes + run.freedBytes;
    } catch (error) {
      // The daemon is stopping; the next one continues the removal.
      if (operations.isLeaving) throw error;
      if (app !== undefined && isEngineAway(runtimeOf(app), error)) {
        await this.#awaitEngine(operation);
        throw error;
      }
      // The rest can still be removed: the app is shown with the reason.
      await operations.end(
        operation,
        registry.get(id) === undefined
          ? []
          : [
              patchApp(id, {
                state: "FAILED",
                stateReason: "the app could not be removed completely; remove it again",
              }),
            ],
      );
      throw error;
    }
  }

  /** Removes files as their owner, who may kill the process that does it: each attempt continues where the last one ended. */
  async #persist<T>(remove: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await remove();
      } catch (error) {
        if (attempt === removeAttempts || this.#options.operations.isLeaving) throw error;
        await wait(removeRetryMs);
      }
    }
  }

  async #awaitEngine(operation: Operation): Promise<void> {
    if (operation.detail.awaitsEngine === true) return;
    operation.detail.awaitsEngine = true;
    await this.#options.operations.enter(operation, operation.phase);
  }

  async #onEngineBack(operation: Operation, app: AppRecord): Promise<void> {
    const { operations, runtimeOf, runnable } = this.#options;
    await runtimeOf(app).engine?.requireResponse(runnable(app));
    delete operation.detail.awaitsEngine;
    await operations.enter(operation, operation.phase);
  }
}

interface AdoptedApp extends Pick<AppRecord, "adopted"> {
  readonly id?: string;
  readonly origin: Pick<AppRecord["origin"], "url">;
}

/**
 * Removes the package that svc wrote for adopted containers, unless another app is installed from it, too.
 * @param app without an ID before its installation
 */
export async function removeAdoptedPackage(
  { registry, userHelpers, paths: { adoptedDir } }: Pick<AppsContext, "registry" | "userHelpers" | "paths">,
  { id, adopted, origin: { url: directory } }: AdoptedApp,
): Promise<void> {
  if (adopted === null || dirname(directory) !== adoptedDir) return;
  if (registry.all().some((other) => other.id !== id && other.origin.url === directory)) return;
  const self = await userHelpers.as(userHelpers.selfUid);
  await self.removeTree(adoptedDir, basename(directory));
}

export function isEngineAway(runtime: AppRuntime, error: unknown): boolean {
  return runtime.engine !== undefined && error instanceof SvcError && error.code === "unavailable";
}
