/** Pulls an app's image again, and restarts a running app on it if it changed. */
import { SvcError } from "../../errors.ts";
import type { PulledService, ReplacedImage } from "../../runtimes/capabilities.ts";
import { isUp } from "../../runtimes/runtime-status.ts";
import type { AppRecord } from "../records/app-record.ts";
import type { Lifecycle } from "../lifecycle/lifecycle.ts";
import type { Operation } from "../lifecycle/operations.ts";
import { cancelably, type WorkOptions } from "../../work/progress.ts";
import type { AppsContext } from "../apps-context.ts";
import { needsStart } from "../lifecycle/reconciler.ts";

export interface RepullResult {
  id: string;
  changed: boolean;
  restarted: boolean;
  digest: string;
  services: PulledService[];
}

export interface RepullerOptions extends AppsContext {
  lifecycle: Lifecycle;
}

export class Repuller {
  readonly #options: RepullerOptions;

  constructor(options: RepullerOptions) {
    this.#options = options;
  }

  /** @throws SvcError `pinned_image`, `app_busy`, `unavailable`; `start_failed` if it does not start on the new image, in which case it runs on the previous one again */
  repull(app: AppRecord, work: WorkOptions): Promise<RepullResult> {
    return cancelably(work, (within) => this.#repull(app, within));
  }

  async #repull(app: AppRecord, work: WorkOptions): Promise<RepullResult> {
    const { operations, runtimeOf } = this.#options;
    if (runtimeOf(app).images === undefined) {
      throw new SvcError(
        "pinned_image",
        `app "${app.id}" runs on the ${app.runtime} runtime and has no image to pull; upgrade it instead`,
      );
    }
    const operation = await operations.begin({
      ...{ appId: app.id, kind: "repull", phase: "pull" },
      cancel: work.cancel,
    });
    return this.#run(operation, app, work);
  }

  /** Restarts an app that did not start on its new image on the previous one. @returns the message for the user */
  async #rollBack(app: AppRecord, replaced: readonly ReplacedImage[], error: unknown): Promise<unknown> {
    if (!(error instanceof SvcError) || error.reason !== "start_failed" || replaced.length === 0)
      return error;
    await this.#options.runtimeOf(app).images?.restoreNames(replaced);
    await this.#options.lifecycle.start(app);
    const failed = error as SvcError<"start_failed">;
    const message = `${failed.message}; it runs on its image before again`;
    return new SvcError("start_failed", message, { payload: failed.payload });
  }

  async #run(operation: Operation, app: AppRecord, work: WorkOptions): Promise<RepullResult> {
    const { operations, lifecycle, runtimeOf, runnable } = this.#options;
    const { id } = app;
    const runtime = runtimeOf(app);
    try {
      const pulled = await runtime.images?.pull(runnable(app), work);
      const { changed = false, digest = "", replaced = [], services = [] } = pulled ?? {};
      const status = runtime.status(id);
      const restarted = needsStart(app, status) || (changed && isUp(status?.state));
      // From here on a client that disconnects changes nothing, so that a running app is never left stopped.
      if (restarted) await operations.enter(operation, "stop");
      if (restarted) {
        await lifecycle.finishRestart(operation).catch(async (error: unknown) => {
          throw await this.#rollBack(app, replaced, error);
        });
      }
      return { id, changed, restarted, digest, services: [...services] };
    } finally {
      if (!operations.isLeaving) await operations.end(operation);
    }
  }
}
