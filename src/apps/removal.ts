/** Ends an app and all it has. Begun, it goes on to its end, across a restart of the daemon too. */
import { deleteApp, patchApp, type AppRecord } from "./app-record.ts";
import type { Operation } from "./operations.ts";
import type { AppsContext } from "./apps-context.ts";

export class Remover {
  readonly #options: AppsContext;

  constructor(options: AppsContext) {
    this.#options = options;
  }

  /**
   * Stops the app and removes it with all its data; resolves with the bytes that were freed.
   * @throws SvcError `app_busy`
   */
  async remove(app: AppRecord): Promise<number> {
    const operation = await this.#options.operations.begin({
      appId: app.id,
      kind: "remove",
      phase: "stop",
      detail: { runUid: app.runUid },
      statements: [patchApp(app.id, { desired: "stopped" })],
    });
    return this.finish(operation);
  }

  /** The rest of a removal under its lock; also what recovery does with one that was left behind. */
  async finish(operation: Operation): Promise<number> {
    const { operations, identities, paths, registry, runtimeOf, runnable } = this.#options;
    const id = operation.appId;
    try {
      const app = registry.get(id);
      if (app !== undefined && operation.phase === "stop") {
        await runtimeOf(app).stop(runnable(app));
        await operations.enter(operation, "delete");
      }
      const freed = app === undefined ? 0 : await runtimeOf(app).remove(runnable(app));
      const uid = operation.detail.runUid ?? app?.runUid ?? identities.selfUid;
      const tree = await (await identities.tree(paths.appDir(id), uid)).destroy();
      const run = await identities.removeOwnedDir(paths.appRunDir(id), uid);
      await operations.end(operation, [deleteApp(id)]);
      return freed + tree.freedBytes + run.freedBytes;
    } catch (error) {
      // It was not the app's fault, and the next daemon goes on with it.
      if (operations.isLeaving) throw error;
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
}
