/** Background work for installed apps while a process runs. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { mapBounded } from "../../lib/map-bounded.ts";
import { Ticker } from "../../lib/clock.ts";
import type { AppsContext } from "../apps-context.ts";
import type { FreePorts } from "../ports/free-ports.ts";
import type { Reattachment } from "../records/reattachment.ts";
import { isReadable } from "../records/unreadable-app.ts";
import type { Recovery } from "./recovery.ts";
import type { Reconciler } from "./reconciler.ts";

export interface BackgroundWorkOptions extends Pick<
  AppsContext,
  "registry" | "operations" | "userHelpers" | "paths" | "log"
> {
  reattachment: Reattachment;
  reconciler: Reconciler;
  recovery: Recovery;
  freePorts: FreePorts;
}

/** Interval of the sweep for interrupted operations. */
const sweepIntervalMs = 5_000;
/** Apps per turn of the event loop; a thousand at once would delay the first responses. */
const parallelClaims = 4;

export class BackgroundWork implements AsyncDisposable {
  readonly #options: BackgroundWorkOptions;
  #reattached: Promise<string[]> = Promise.resolve([]);
  #starting: Promise<void> = Promise.resolve();
  readonly #mayClaim = Promise.withResolvers<undefined>();
  #sweeper: Ticker | undefined;

  constructor(options: BackgroundWorkOptions) {
    this.#options = options;
  }

  /**
   * Reattaches to running apps, and recovers interrupted operations. Returns at once: both run in the background, and calls that need
   * their result wait for it.
   */
  start(): void {
    const claimed = this.#mayClaim.promise.then(() => this.#claimTrees());
    this.#reattached = this.#options.reattachment.start();
    this.#starting = this.#reattached.then(() => this.#sweep()).then(() => claimed);
    this.#sweeper = new Ticker(sweepIntervalMs, () => this.#sweep());
  }

  /** Starts to take ownership of the apps' top directories, which can wait until the first responses are sent. */
  claimTrees(): void {
    this.#mayClaim.resolve(undefined);
  }

  /** Starts reconciling apps with their desired state. Only for the daemon, not for in-process commands. */
  startReconciling(): void {
    this.claimTrees();
    void this.#reattached.then((ended) => this.#options.reconciler.start(ended));
  }

  /** Stops reconciling. */
  async stopReconciling(): Promise<void> {
    const { operations, reconciler } = this.#options;
    operations.leave();
    await reconciler[Symbol.asyncDispose]();
  }

  /** In earlier versions the top directories belonged to the owners of the apps. */
  async #claimTrees(): Promise<void> {
    const { registry, userHelpers, paths, log } = this.#options;
    // The owners of unreadable apps are unknown.
    const readable = registry.all().filter(isReadable);
    await mapBounded(readable, parallelClaims, async ({ id, runUid }) => {
      await nextTurn();
      try {
        await (await userHelpers.tree(paths.appDir(id), runUid)).claim();
      } catch (error) {
        log.warn({ err: error, appId: id }, "failed to make the daemon the owner of an app's directory");
      }
    });
  }

  async #sweep(): Promise<void> {
    const { recovery, freePorts, log } = this.#options;
    try {
      await recovery.sweep();
      await freePorts.reserveDeclared();
    } catch (error) {
      log.error({ err: error }, "failed to recover operations and reserve ports");
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopReconciling();
    this.claimTrees();
    await this.#starting;
    await this.#sweeper?.[Symbol.asyncDispose]();
  }
}
