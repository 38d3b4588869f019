/**
 * The embedded runtime: apps as plain processes, each with a supervisor of its own that outlives the daemon.
 */
import { SvcError } from "../../errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { RequestOptions } from "../../identity/identity-work.ts";
import { baseEnvironment } from "../../identity/launch.ts";
import type { Terminal } from "../../lib/terminal.ts";
import { FollowingRuntime } from "../followed-apps.ts";
import { limitsOf } from "../limits.ts";
import {
  isUp,
  type AppRuntime,
  type FollowLogOptions,
  type LogChunk,
  type RunnableApp,
  type RuntimeLimit,
  type RuntimeUsage,
  type TerminalRequest,
} from "../runtime.ts";
import { logFileStart } from "./log-files.mjs";
import { parseRecords } from "./log-lines.ts";
import { ProcessSampler } from "./process-sampler.ts";
import { processSpec } from "./process-spec.ts";
import { openProcessTerminal } from "./process-terminal.ts";
import type { SampledRun } from "./run-membership.ts";
import { logDirName, SupervisedApp, type SupervisionOptions } from "./supervised-app.ts";
import { connectSupervisor } from "./supervisor-connection.ts";
import type { ProcessAppRef } from "./supervisor-watch.ts";

export interface ProcessRuntimeOptions extends SupervisionOptions {
  /** PATH of apps, ahead of what they set themselves. */
  searchPath: string;
}

/** A supervisor that reports more often than this is heard this seldom. */
const notifyMs = 50;

/** Runs apps as processes. Operations on one app come one at a time; the caller sees to that. */
export class ProcessRuntime extends FollowingRuntime<SupervisedApp> implements AppRuntime {
  readonly #options: ProcessRuntimeOptions;
  readonly #sampler = new ProcessSampler();
  readonly #changed = new Map<string, NodeJS.Timeout>();

  constructor(options: ProcessRuntimeOptions) {
    super();
    this.#options = options;
  }

  /** Nothing: what a process needs lies in its app's tree. */
  async prepare(): Promise<void> {}

  async settle(): Promise<void> {}

  /** Nothing: whether a program can be run shows when it is. */
  async check(): Promise<void> {}

  /**
   * Starts an app; one that runs is left as it is. What an earlier run left behind is ended first.
   * @returns once the main process has lived for `settleMs`; health is another matter, see {@link waitHealthy}
   * @throws SvcError `start_failed` with exit code, signal and last lines when it ended by then
   */
  async start(app: RunnableApp): Promise<void> {
    const { identities, searchPath } = this.#options;
    const { user } = await identities.as(app.uid);
    try {
      await identities.createOwnedDir(app.runDir, app.uid);
    } catch (error) {
      if (!(error instanceof SvcError && error.code === "already_exists")) throw error;
    }
    await this.#supervised(app).start(processSpec(app, baseEnvironment(user, searchPath)));
  }

  /**
   * Ends every process of an app, by its stop signal, after the grace period by SIGKILL; one that does not run is
   * left as it is. It must not be interrupted, so it takes no signal.
   * @throws SvcError `unavailable` when some process cannot be ended
   */
  async stop(app: RunnableApp): Promise<void> {
    await this.#supervised(app).stop(app.manifest.stop.graceMs);
  }

  freezable({ id }: RunnableApp): Promise<string[]> {
    return Promise.resolve(isUp(this.status(id)?.state) ? [id] : []);
  }

  /** By its supervisor, as long as this process lives and holds a connection to it. */
  async freeze(app: RunnableApp): Promise<void> {
    await this.#supervised(app).freeze();
  }

  async thaw(app: RunnableApp): Promise<boolean> {
    return this.#supervised(app).thaw();
  }

  /**
   * Finds out how an app fares that an earlier daemon started, and watches it from now on. Where its supervisor was
   * killed, what it left running is ended by the next start or stop.
   * @throws SvcError when its supervisor or its owner's files cannot be reached
   */
  async adopt(app: RunnableApp): Promise<"running" | "ended" | "lost"> {
    const { state, isLost } = await this.#supervised(app).adopt(app.manifest.limits);
    if (isLost === true) return "lost";
    return state === "STOPPED" || state === "FAILED" || state === "CRASHED" ? "ended" : "running";
  }

  /** Only forgets it: all that is kept of a process lies in directories of its app. */
  async remove({ id }: RunnableApp): Promise<number> {
    this.unfollow(id);
    return Promise.resolve(0);
  }

  protected override unfollow(id: string): void {
    super.unfollow(id);
    clearTimeout(this.#changed.get(id));
    this.#changed.delete(id);
  }

  /** Whether the app runs or not. */
  openTerminal(app: RunnableApp, request: TerminalRequest): Promise<Terminal> {
    return openProcessTerminal(this.#options, app, request);
  }

  limits(app: RunnableApp): RuntimeLimit[] {
    return limitsOf(app, this.#options.cgroups?.enforces ?? { memory: false, cpus: false });
  }

  /** What runs now, by app: its main process, whose session is the app's, and its supervisor. */
  runs(): (SampledRun & { supervisorPid: number })[] {
    return [...this.apps.values()].flatMap(({ ref: { id: appId, uid: ownerUid }, state }) => {
      if (state === undefined || state.final) return [];
      const { runId, app, supervisor } = state;
      return [{ appId, ownerUid, runId, ...(app && { pid: app.pid }), supervisorPid: supervisor.pid }];
    });
  }

  /** Memory is the proportional set size of all processes together; a network share cannot be told. */
  async stats(
    apps: readonly RunnableApp[],
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, RuntimeUsage>> {
    const ids = new Set(apps.map(({ id }) => id));
    const runs = this.runs().filter(({ appId }) => ids.has(appId));
    return this.#sampler.sample(runs, signal);
  }

  /** Read with the owner's identity, from the end of the files. */
  async logs(
    { runDir, uid }: RunnableApp,
    { tail, signal }: { tail: number; signal?: AbortSignal },
  ): Promise<LogChunk> {
    const request = signal && { signal };
    const owner = await this.#options.identities.as(uid);
    const files = tail < 1 ? [] : await logFilesOf(owner, runDir, request);
    if (files.length === 0) return { lines: [], truncated: false, missedBytes: 0 };
    const paths = files.map(({ path }) => path);
    const { data, truncated } = await owner.readTail(runDir, paths, { maxLines: tail, ...request });
    return { lines: parseRecords(data.toString()), truncated, missedBytes: 0 };
  }

  /**
   * No line twice and none left out between tail and news; ends when the app stops. Who iterates slowly slows nobody
   * else down: what is rotated away meanwhile is counted as `missedBytes`.
   */
  async *followLogs(
    app: RunnableApp,
    { tail, after, signal }: FollowLogOptions,
  ): AsyncGenerator<LogChunk, void> {
    const connection = await connectSupervisor(app, this.#options);
    let seen = after?.position ?? (after && (await this.#positionBefore(app, after.timeMs, signal)));
    if (connection === undefined && seen === undefined) {
      // Asked first: what a start prints meanwhile may come twice, and is not missed.
      const position = await this.#logEnd(app, signal);
      yield { ...(await this.logs(app, { tail, signal })), position };
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
        yield { lines, truncated: false, missedBytes, position: seen };
      }
    } finally {
      signal.removeEventListener("abort", close);
      close();
    }
    if (seen === undefined) return;
    try {
      yield* this.#rest(app, seen, signal);
    } catch (error) {
      // The app is removed, and its log with it.
      if (!(error instanceof SvcError && error.reason === "not_found")) throw error;
    }
  }

  /** The start of the log file in which that moment is: what is older in it, who follows knows by its time. */
  async #positionBefore({ runDir, uid }: RunnableApp, timeMs: number, signal: AbortSignal): Promise<number> {
    const owner = await this.#options.identities.as(uid);
    const files = await logFilesOf(owner, runDir, { signal });
    for (const { path, start } of files.toReversed()) {
      const head = await firstOf(owner.openRead(runDir, path, { signal }));
      const end = head?.indexOf("\n") ?? -1;
      const [first] = parseRecords(head?.toString("utf8", 0, end) ?? "");
      if (first !== undefined && first.timeMs <= timeMs) return start;
    }
    return files.at(0)?.start ?? 0;
  }

  /** Where the log ends now. */
  async #logEnd({ runDir, uid }: RunnableApp, signal: AbortSignal): Promise<number> {
    const owner = await this.#options.identities.as(uid);
    const last = (await logFilesOf(owner, runDir, { signal })).at(-1);
    if (last === undefined) return 0;
    return last.start + ((await owner.stat(runDir, last.path, { signal }))?.sizeBytes ?? 0);
  }

  /** From a position on: a supervisor that ends waits for slow readers no more than a moment, and one that is killed for none. */
  async *#rest(
    { runDir, uid }: RunnableApp,
    seen: number,
    signal: AbortSignal,
  ): AsyncGenerator<LogChunk, void> {
    if (signal.aborted) return;
    const owner = await this.#options.identities.as(uid);
    let position = seen;
    for (const { path, start } of await logFilesOf(owner, runDir, { signal })) {
      if (start > position) yield { lines: [], truncated: false, missedBytes: start - position };
      position = Math.max(position, start);
      for (;;) {
        // Piece by piece: a reader who takes long must not keep the owner's helper at work.
        const piece = await firstOf(owner.openRead(runDir, path, { offset: position - start, signal }));
        if (piece === undefined) break;
        // What has no end is what a supervisor that was killed left, which the next one cuts off, or the owner's: no record.
        const end = piece.lastIndexOf("\n") + 1;
        if (end === 0) break;
        position += end;
        const lines = parseRecords(piece.toString("utf8", 0, end));
        yield { lines, truncated: false, missedBytes: 0, position };
      }
    }
  }

  #supervised({ id, uid, runDir }: ProcessAppRef): SupervisedApp {
    const known = this.apps.get(id);
    if (known?.ref.runDir === runDir && known.ref.uid === uid) return known;
    known?.detach();
    const app = new SupervisedApp({ id, uid, runDir }, this.#options, () => this.#tellSoon(id));
    this.follow(id, app);
    return app;
  }

  /** Several changes in quick succession are told as one. */
  #tellSoon(id: string): void {
    this.changed();
    if (this.#changed.has(id)) return;
    const timer = setTimeout(() => {
      this.#changed.delete(id);
      this.tell(id);
    }, notifyMs);
    this.#changed.set(id, timer.unref());
  }
}

interface OwnedLogFile {
  /** In the run directory. */
  readonly path: string;
  /** The position of its first byte. */
  readonly start: number;
}

/** The files of a log, the oldest first; none where nothing was ever started. */
async function logFilesOf(
  owner: Identity,
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
