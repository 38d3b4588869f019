/** The process runtime: apps as plain processes, each with a supervisor that outlives the daemon. */
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { RequestOptions } from "../../run-as/user-helper-types.ts";
import { baseEnvironment } from "../../run-as/launch.ts";
import type { Terminal } from "../../lib/terminal.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { limitsOf } from "../limits.ts";
import type { AppRuntime, FollowLogOptions, LogOptions } from "../contract.ts";
import type {
  RuntimeLimit,
  RuntimeUsage,
  TerminalRequest,
  FreezingRuntime,
  UsageRuntime,
  TerminalRuntime,
} from "../capabilities.ts";
import { isUp } from "../runtime-status.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import type { LogPosition } from "../../logs/log-position.ts";
import { logFileStart } from "./log-files.mjs";
import { parseRecords } from "./log-lines.ts";
import { ProcessSampler } from "./process-sampler.ts";
import { processSpec } from "./process-spec.ts";
import { openProcessTerminal } from "./process-terminal.ts";
import type { SampledRun } from "../../sys/run-membership.ts";
import { logDirName, SupervisedApp, type SupervisionOptions } from "./supervised-app.ts";
import { connectSupervisor } from "./supervisor-connection.ts";
import type { ProcessAppRef } from "./supervisor-watch.ts";

export interface ProcessRuntimeOptions extends SupervisionOptions {
  /** Prepended to the PATH of apps. */
  searchPath: string;
}

/** Minimum interval between notifications of a supervisor's changes. */
const notifyMs = 50;

/** Runs apps as processes. Callers run only one operation per app at a time. */
export class ProcessRuntime extends FollowingRuntime<SupervisedApp> implements AppRuntime {
  readonly freezing: FreezingRuntime = this;
  readonly usage: UsageRuntime = this;
  readonly terminals: TerminalRuntime = this;

  readonly #options: ProcessRuntimeOptions;
  readonly #sampler = new ProcessSampler();
  readonly #changed = new Map<string, NodeJS.Timeout>();

  constructor(options: ProcessRuntimeOptions) {
    super();
    this.#options = options;
  }

  /** Does nothing: all that a process needs is in its app's tree. */
  async prepare(): Promise<void> {}

  async settle(): Promise<void> {}

  /** Does nothing: whether a program can be run shows only at its start. */
  async check(): Promise<void> {}

  /**
   * Starts an app unless it runs. Ends leftovers of an earlier run first.
   * @returns once the main process has run for `settleMs`; for its health see {@link waitHealthy}
   * @throws SvcError `start_failed` with exit code, signal and last lines if it exited before
   */
  async start(app: RunnableApp): Promise<void> {
    const { userHelpers, searchPath } = this.#options;
    const { user } = await userHelpers.as(app.uid);
    try {
      await userHelpers.createOwnedDir(app.runDir, app.uid);
    } catch (error) {
      if (!(error instanceof SvcError && error.code === "already_exists")) throw error;
    }
    await this.#supervised(app).start(processSpec(app, baseEnvironment(user, searchPath)));
  }

  /**
   * Ends every process of an app, if it runs: by its stop signal, then by SIGKILL after the grace period. Takes no
   * signal, because it must not be interrupted.
   * @throws SvcError `unavailable` when a process cannot be ended
   */
  async stop(app: RunnableApp): Promise<void> {
    await this.#supervised(app).stop(app.manifest.stop.graceMs);
  }

  freezable({ id }: RunnableApp): Promise<string[]> {
    return Promise.resolve(isUp(this.status(id)?.state) ? [id] : []);
  }

  /** The supervisor keeps the app frozen as long as this daemon lives and stays connected. */
  async freeze(app: RunnableApp): Promise<void> {
    await this.#supervised(app).freeze();
  }

  async thaw(app: RunnableApp): Promise<boolean> {
    return this.#supervised(app).thaw();
  }

  /**
   * Determines the status of an app that an earlier daemon started, and watches it from now on. If the app's supervisor was
   * killed, the next start or stop ends its leftovers.
   * @throws SvcError when the app's supervisor or the owner's files cannot be accessed
   */
  async reattach(app: RunnableApp): Promise<"running" | "ended" | "lost"> {
    const { state, isLost } = await this.#supervised(app).reattach(app.manifest.limits);
    if (isLost === true) return "lost";
    return state === "STOPPED" || state === "FAILED" || state === "CRASHED" ? "ended" : "running";
  }

  /** Forgets the app, and ends processes that its owner hid in its cgroup. All else is in the app's directories. */
  async remove({ id }: RunnableApp): Promise<number> {
    this.unfollow(id);
    await this.#options.cgroups?.end(id);
    return 0;
  }

  protected override unfollow(id: string): void {
    super.unfollow(id);
    clearTimeout(this.#changed.get(id));
    this.#changed.delete(id);
  }

  /** The app does not have to run. */
  openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal> {
    return openProcessTerminal(this.#options, app, request);
  }

  limits(app: RunnableApp): RuntimeLimit[] {
    return limitsOf(app, this.#options.cgroups?.enforces ?? { memory: false, cpus: false });
  }

  /** The running processes by app: the main process, which leads the app's session, and the supervisor. */
  runs(): (SampledRun & { supervisorPid: number })[] {
    return [...this.apps.values()].flatMap(({ ref: { id: appId, uid: ownerUid }, state }) => {
      if (state === undefined || state.final) return [];
      const { runId, app, supervisor } = state;
      return [{ appId, ownerUid, runId, ...(app && { pid: app.pid }), supervisorPid: supervisor.pid }];
    });
  }

  /** Memory is the proportional set size of all processes; network usage cannot be measured. */
  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const ids = new Set(apps.map(({ id }) => id));
    const runs = this.runs().filter(({ appId }) => ids.has(appId));
    return this.#sampler.sample(runs, signal);
  }

  /** Reads the end of the log files as the owner. */
  async logs({ runDir, uid }: RunnableApp, { tail, signal }: LogOptions): Promise<LogChunk> {
    const request = signal && { signal };
    const owner = await this.#options.userHelpers.as(uid);
    const files = tail < 1 ? [] : await logFilesOf(owner, runDir, request);
    if (files.length === 0) return { lines: [], truncated: false, missedBytes: 0 };
    const paths = files.map(({ path }) => path);
    const { data, truncated } = await owner.readTail(runDir, paths, { maxLines: tail, ...request });
    return { lines: parseRecords(data.toString()), truncated, missedBytes: 0 };
  }

  /**
   * Repeats and omits no line between tail and new lines; ends when the app stops. A slow reader delays nobody: what
   * is rotated away meanwhile is counted in `missedBytes`.
   */
  async *followLogs(
    app: RunnableApp,
    { tail, after, signal }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    const connection = await connectSupervisor(app, this.#options);
    let seen = after && (await this.#offsetOf(app, after, signal));
    if (connection === undefined && seen === undefined) {
      // Read the offset first: output of a start may be repeated then, but not missed.
      const offset = await this.#logEnd(app, signal);
      yield { ...(await this.logs(app, { tail, signal })), offset };
      return;
    }
    const close = (): void => connection?.close();
    signal.addEventListener("abort", close, { once: true });
    try {
      if (signal.aborted) return;
      const events = connection?.follow(seen === undefined ? { tail } : { from: seen });
      for await (const event of events ?? []) {
        const isGap = event.type === "gap";
        const lines = isGap ? [] : parseRecords(event.text);
        seen = event.to;
        const missedBytes = isGap ? event.to - event.from : 0;
        yield { lines, truncated: false, missedBytes, offset: seen };
      }
    } finally {
      signal.removeEventListener("abort", close);
      close();
    }
    if (seen === undefined) return;
    try {
      yield* this.#rest(app, seen, signal);
    } catch (error) {
      // The app was removed, and its log with it.
      if (!(error instanceof SvcError && error.reason === "not_found")) throw error;
    }
  }

  /**
   * The position's offset. If it has none, or an invalid one: that of the last log file that starts before its time; the caller
   * leaves out the lines up to the position.
   */
  async #offsetOf(app: RunnableApp, { offset, timeMs }: LogPosition, signal: AbortSignal): Promise<number> {
    // Beyond the end: of an earlier app with this ID.
    if (offset !== undefined && offset <= (await this.#logEnd(app, signal))) return offset;
    const { runDir, uid } = app;
    const owner = await this.#options.userHelpers.as(uid);
    const files = await logFilesOf(owner, runDir, { signal });
    for (const { path, start } of files.toReversed()) {
      const head = await firstOf(owner.openRead(runDir, path, { signal }));
      const end = head?.indexOf("\n") ?? -1;
      const [first] = parseRecords(head?.toString("utf8", 0, end) ?? "");
      if (first !== undefined && first.timeMs < timeMs) return start;
    }
    return files.at(0)?.start ?? 0;
  }

  /** The current end of the log. */
  async #logEnd({ runDir, uid }: RunnableApp, signal: AbortSignal): Promise<number> {
    const owner = await this.#options.userHelpers.as(uid);
    const last = (await logFilesOf(owner, runDir, { signal })).at(-1);
    if (last === undefined) return 0;
    return last.start + ((await owner.stat(runDir, last.path, { signal }))?.sizeBytes ?? 0);
  }

  /**
   * The log from an offset on: a supervisor that exits waits only briefly for slow readers, and a killed one not at
   * all.
   */
  async *#rest(
    { runDir, uid }: RunnableApp,
    seen: number,
    signal: AbortSignal,
  ): AsyncGenerator<LogChunk, void> {
    if (signal.aborted) return;
    const owner = await this.#options.userHelpers.as(uid);
    let offset = seen;
    for (const { path, start } of await logFilesOf(owner, runDir, { signal })) {
      if (start > offset) yield { lines: [], truncated: false, missedBytes: start - offset };
      offset = Math.max(offset, start);
      for (;;) {
        // In pieces: a slow reader must not occupy the owner's helper.
        const piece = await firstOf(owner.openRead(runDir, path, { offset: offset - start, signal }));
        if (piece === undefined) break;
        // An unfinished record was left by a killed supervisor, whose successor cuts it off, or written by the owner.
        const end = piece.lastIndexOf("\n") + 1;
        if (end === 0) break;
        offset += end;
        const lines = parseRecords(piece.toString("utf8", 0, end));
        yield { lines, truncated: false, missedBytes: 0, offset };
      }
    }
  }

  #supervised({ id, uid, runDir }: ProcessAppRef): SupervisedApp {
    const known = this.apps.get(id);
    if (known?.ref.runDir === runDir && known.ref.uid === uid) return known;
    known?.detach();
    const app = new SupervisedApp({ id, uid, runDir }, this.#options, () => this.#notifySoon(id));
    this.follow(id, app);
    return app;
  }

  /** Combines changes in quick succession into one notification. */
  #notifySoon(id: string): void {
    this.changed();
    if (this.#changed.has(id)) return;
    const timer = setTimeout(() => {
      this.#changed.delete(id);
      this.notify(id);
    }, notifyMs);
    this.#changed.set(id, timer.unref());
  }
}

interface OwnedLogFile {
  /** Relative to the run directory. */
  readonly path: string;
  /** Position of its first byte. */
  readonly start: number;
}

/** The files of a log, oldest first; empty for an app that was never started. */
async function logFilesOf(
  owner: UserHelper,
  runDir: string,
  options?: RequestOptions,
): Promise<readonly OwnedLogFile[]> {
  if ((await owner.stat(runDir, logDirName, options)) === undefined) return [];
  return (await owner.list(runDir, logDirName, options)).flatMap(({ name, type }) => {
    const start = logFileStart(name);
    return type === "file" && start !== undefined ? [{ path: `${logDirName}/${name}`, start }] : [];
  });
}

async function firstOf(bytes: AsyncIterable<Buffer>): Promise<Buffer | undefined> {
  for await (const piece of bytes) return piece;
  return undefined;
}
