/**
 * The embedded runtime: apps as plain processes, each with a supervisor of its own that outlives the daemon.
 */
import { SvcError } from "../../errors.ts";
import { logFileStart } from "./log-files.mjs";
import { parseRecords, type LogGap, type LogLine } from "./log-lines.ts";
import { mapBounded } from "./map-bounded.ts";
import { ProcessSampler, type ProcessUsage } from "./process-sampler.ts";
import { neverStarted, type ProcessStatus } from "./process-status.ts";
import {
  LOG_DIR,
  SupervisedApp,
  type ProcessAppRef,
  type ProcessSpec,
  type SupervisionOptions,
} from "./supervised-app.ts";
import { connectSupervisor } from "./supervisor-connection.ts";

export interface ProcessRuntimeOptions extends SupervisionOptions {
  /** Default: one over `/proc` with a window of 500 ms. */
  sampler?: ProcessSampler;
}

export interface LogOptions {
  /** The last so many lines, at least 1. */
  tail: number;
  /** Only lines read from the app at this instant or later. */
  since?: Date;
  signal?: AbortSignal;
}

export interface FollowOptions {
  /** How many lines that are there already come first. */
  tail: number;
  signal: AbortSignal;
}

/** Whether each limit that was asked for holds on this machine. */
export interface LimitEnforcement {
  memory: boolean;
  cpus: boolean;
  openFiles: boolean;
}

export type StatusListener = (appId: string, status: ProcessStatus) => void;

const ADOPTIONS_AT_ONCE = 64;
/** A supervisor that reports more often is heard this seldom. */
const NOTIFY_MS = 50;

/** Runs apps as processes. Operations on one app come one at a time; the caller sees to that. */
export class ProcessRuntime implements AsyncDisposable {
  readonly #options: ProcessRuntimeOptions;
  readonly #sampler: ProcessSampler;
  readonly #apps = new Map<string, SupervisedApp>();
  readonly #listeners = new Set<StatusListener>();
  readonly #changed = new Map<string, NodeJS.Timeout>();

  constructor(options: ProcessRuntimeOptions) {
    this.#options = options;
    this.#sampler = options.sampler ?? new ProcessSampler();
  }

  /**
   * Starts an app; one that runs is left as it is. What an earlier run left behind is ended first.
   * @returns once the main process has lived for `settleMs`; health is another matter, see {@link waitHealthy}
   * @throws SvcError `start_failed` with exit code, signal and last lines when it ended by then
   */
  async start(app: ProcessAppRef & { spec: ProcessSpec }): Promise<void> {
    const { runDir, ownerUid } = app;
    try {
      await this.#options.identities.createOwnedDir(runDir, ownerUid, 0o700);
    } catch (error) {
      if (!(error instanceof SvcError && error.code === "already_exists")) throw error;
    }
    await this.#supervised(app).start(app.spec);
  }

  /**
   * Ends every process of an app, by its stop signal, after the grace period by SIGKILL; one that does not run is
   * left as it is. It must not be interrupted, so it takes no signal.
   * @throws SvcError `unavailable` when some process cannot be ended
   */
  async stop(app: ProcessAppRef, { graceMs }: { graceMs?: number } = {}): Promise<void> {
    await this.#supervised(app).stop(graceMs);
  }

  /** Stops and starts: the app gets the supervisor of this version of svc. Fails as both do. */
  async restart(app: ProcessAppRef & { spec: ProcessSpec }): Promise<void> {
    await this.stop(app);
    await this.start(app);
  }

  /** What is known of an app, without asking anybody; current to within a second for one that was started or adopted. */
  status(appId: string): ProcessStatus {
    return this.#apps.get(appId)?.status ?? neverStarted;
  }

  /**
   * Finds out how an app fares that an earlier daemon started, and watches it from now on. Its supervisor may live, may
   * have ended with a last word, may have been killed (`CRASHED`; what it left is ended by the next start or stop), or
   * may have gone down with the machine (`interruptedByReboot`).
   * @throws SvcError when the supervisor or the owner's files cannot be reached
   */
  async adopt(app: ProcessAppRef): Promise<ProcessStatus> {
    return this.#supervised(app).adopt();
  }

  /** Adopts many apps at once; one that cannot be asked is `UNKNOWN` with the reason. */
  async adoptAll(apps: readonly ProcessAppRef[]): Promise<Map<string, ProcessStatus>> {
    const statuses = await mapBounded(
      apps,
      ADOPTIONS_AT_ONCE,
      async (app): Promise<[string, ProcessStatus]> => {
        try {
          return [app.id, await this.adopt(app)];
        } catch (error) {
          this.#options.log("app could not be adopted", { app: app.id, error });
          const reason = error instanceof Error ? error.message : String(error);
          return [app.id, { ...neverStarted, state: "UNKNOWN", reason }];
        }
      },
    );
    return new Map(statuses);
  }

  /**
   * Resolves when the app runs and its health check, if it has one, has passed.
   * @throws SvcError `start_failed` when it ends, restarts or turns unhealthy; `deadline_exceeded`, `canceled`
   */
  async waitHealthy(appId: string, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    const app = this.#apps.get(appId);
    if (app === undefined)
      throw new SvcError("failed_precondition", "app_not_running", `app "${appId}" does not run`);
    await app.waitHealthy(timeoutMs, signal);
  }

  /** Hands a running app's supervisor a changed specification: log bounds and restarts at once, the command at its next start. */
  async reload(app: ProcessAppRef & { spec: ProcessSpec }): Promise<void> {
    await this.#supervised(app).reload(app.spec);
  }

  /** Removes what the runtime keeps of a stopped app, its logs included. */
  async remove(app: ProcessAppRef): Promise<void> {
    await this.#supervised(app).stop();
    this.#forget(app.id);
    await this.#options.identities.removeOwnedDir(app.runDir, app.ownerUid);
  }

  /** Calls back soon after each change of a status, from within or without. @returns what ends it */
  onChange(listener: StatusListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Which limits hold on this machine. */
  get enforces(): LimitEnforcement {
    return { ...(this.#options.cgroups?.enforces ?? { memory: false, cpus: false }), openFiles: true };
  }

  /** What apps use, all of them in one window of 500 ms; those that do not run are absent. */
  async stats(appIds: readonly string[], signal?: AbortSignal): Promise<Map<string, ProcessUsage>> {
    const runs = appIds.flatMap((appId) => {
      const app = this.#apps.get(appId);
      const state = app?.state;
      if (app === undefined || state === undefined || state.final) return [];
      const { runId, app: main } = state;
      return [{ appId, ownerUid: app.ref.ownerUid, runId, ...(main && { pid: main.pid }) }];
    });
    return this.#sampler.sample(runs, signal);
  }

  /** The last lines of an app's log, oldest first, read with its owner's identity from the end of the files. */
  async logs({ runDir, ownerUid }: ProcessAppRef, { tail, since, signal }: LogOptions): Promise<LogLine[]> {
    const owner = await this.#options.identities.as(ownerUid);
    const request = signal && { signal };
    if ((await owner.stat(runDir, LOG_DIR, request)) === undefined) return [];
    const files = (await owner.list(runDir, LOG_DIR, request))
      .filter(({ name, type }) => type === "file" && logFileStart(name) !== undefined)
      .map(({ name }) => `${LOG_DIR}/${name}`);
    const { data } = await owner.readTail(runDir, files, { maxLines: tail, ...request });
    const lines = parseRecords(data.toString());
    return since === undefined ? lines : lines.filter(({ at }) => Date.parse(at) >= since.getTime());
  }

  /**
   * The last lines and then each new one, none twice and none left out; ends when the app stops. Whoever iterates
   * slowly slows nobody else down, and learns by a {@link LogGap} what was rotated away meanwhile.
   */
  async *followLogs(
    app: ProcessAppRef,
    { tail, signal }: FollowOptions,
  ): AsyncGenerator<LogLine | LogGap, void> {
    const { runDir, ownerUid } = app;
    const connection = await connectSupervisor({ runDir, ownerUid, peerUid: this.#options.peerUid });
    if (connection === undefined) {
      if (tail > 0) yield* await this.logs(app, { tail, signal });
      return;
    }
    const close = (): void => connection.close();
    signal.addEventListener("abort", close, { once: true });
    try {
      if (signal.aborted) return;
      for await (const event of connection.follow({ tail })) {
        if (event.type === "gap") yield { missedBytes: event.to - event.from };
        else yield* parseRecords(event.text);
      }
    } finally {
      signal.removeEventListener("abort", close);
      close();
    }
  }

  /** Lets go of all apps, which go on. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const id of [...this.#apps.keys()]) this.#forget(id);
    await Promise.resolve();
  }

  #supervised(ref: ProcessAppRef): SupervisedApp {
    const known = this.#apps.get(ref.id);
    if (known?.ref.runDir === ref.runDir && known.ref.ownerUid === ref.ownerUid) return known;
    known?.detach();
    const { id, ownerUid, runDir } = ref;
    const app = new SupervisedApp({ id, ownerUid, runDir }, this.#options, () => this.#announce(id));
    this.#apps.set(id, app);
    return app;
  }

  #forget(id: string): void {
    this.#apps.get(id)?.detach();
    this.#apps.delete(id);
    clearTimeout(this.#changed.get(id));
    this.#changed.delete(id);
  }

  #announce(id: string): void {
    if (this.#changed.has(id)) return;
    const timer = setTimeout(() => {
      this.#changed.delete(id);
      const status = this.status(id);
      for (const listener of this.#listeners) listener(id, status);
    }, NOTIFY_MS);
    this.#changed.set(id, timer.unref());
  }
}
