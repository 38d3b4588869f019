import { readFile, readdir, stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { mapBounded } from "../../lib/map-bounded.ts";
import { isDead, parseStat, type ProcessEntry } from "../../lib/process-table.mjs";
import { runIdVariable } from "../../lib/run-cookie.mjs";
import type { RuntimeUsage } from "../runtime.ts";

/** The processes of one run of an app. */
export interface SampledRun {
  appId: string;
  ownerUid: number;
  runId: string;
  /** The main process, when there is one: its session is the app's. */
  pid?: number;
}

export interface SamplerOptions {
  procDir?: string;
  /** Length of the sampling window. */
  windowMs?: number;
  /** Monotonic. */
  nowMs?: () => number;
}

const cookiePattern = new RegExp(`(?:^|\\0)${runIdVariable}=([^\\0]*)\\0`);
/** `USER_HZ`, 100 on every architecture that Node supports. */
const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;
const READS_AT_ONCE = 64;
/** `smaps_rollup` walks page tables in the kernel: few at a time leave the other reads room. */
const MEMORY_READS_AT_ONCE = 2;

interface StorageUse {
  diskReadBytes: number;
  diskWrittenBytes: number;
}

/** Measures the processes of apps, all in one window. */
export class ProcessSampler {
  readonly #procDir: string;
  readonly #windowMs: number;
  readonly #nowMs: () => number;
  /** The cookie of each process that had to be asked for it; a process keeps it for life. */
  #cookies = new Map<number, { startTicks: number; runId: string | undefined }>();

  constructor({ procDir = "/proc", windowMs = 500, nowMs = () => performance.now() }: SamplerOptions = {}) {
    this.#procDir = procDir;
    this.#windowMs = windowMs;
    this.#nowMs = nowMs;
  }

  /**
   * Measures over one window, however many runs there are.
   * @returns by app id; an app without a process that can be seen is absent
   */
  async sample(runs: readonly SampledRun[], signal?: AbortSignal): Promise<Map<string, RuntimeUsage>> {
    const members = await this.members(runs);
    const all = [...members.values()].flat();
    const beforeMs = this.#nowMs();
    const before = new Map(all.map((entry) => [entry.pid, entry]));

    const window = sleep(this.#windowMs, undefined, signal && { signal });
    const memory = new Map<number, number>();
    const storage = new Map<number, StorageUse>();
    await Promise.all([
      window,
      mapBounded(all, MEMORY_READS_AT_ONCE, async (entry) =>
        memory.set(entry.pid, await this.#memoryOf(entry)),
      ),
      mapBounded(all, READS_AT_ONCE, async ({ pid }) => {
        const use = await this.#storageOf(pid);
        if (use !== undefined) storage.set(pid, use);
      }),
    ]);

    const after = new Map<number, ProcessEntry>();
    const elapsedSecs = (this.#nowMs() - beforeMs) / 1000;
    await mapBounded(all, READS_AT_ONCE, async ({ pid, startTicks }) => {
      const entry = await this.#read(pid);
      if (entry?.startTicks === startTicks) after.set(pid, entry);
    });

    const usage = new Map<string, RuntimeUsage>();
    for (const [appId, entries] of members) {
      let ticks = 0;
      let memoryBytes = 0;
      for (const { pid } of entries) {
        ticks += Math.max(0, (after.get(pid)?.cpuTicks ?? 0) - (before.get(pid)?.cpuTicks ?? 0));
        memoryBytes += memory.get(pid) ?? 0;
      }
      const cpuPercent = ((ticks / TICKS_PER_SECOND) * 100) / elapsedSecs;
      usage.set(appId, {
        cpuPercent: Math.round(cpuPercent * 10) / 10,
        memoryBytes,
        processes: entries.length,
        ...totalStorage(entries.flatMap(({ pid }) => storage.get(pid) ?? [])),
      });
    }
    return usage;
  }

  /** The living processes of each run, by app id: its session, who carries its cookie, and their descendants. */
  async members(runs: readonly SampledRun[]): Promise<Map<string, ProcessEntry[]>> {
    const table = await this.#readTable();
    const sessions = new Map(runs.map((run) => [sessionKey(run.pid, run.ownerUid), run]));
    const claimed = new Set(runs.map(({ pid }) => pid));
    const byRunId = new Map(runs.map((run) => [run.runId, run]));
    const owners = new Set(runs.map(({ ownerUid }) => ownerUid));
    const byPid = new Map(table.map((entry) => [entry.pid, entry]));
    const runOf = new Map<number, SampledRun | undefined>();

    const strangers = table.filter(({ sid }) => !claimed.has(sid));
    // Which session is the app's is its owner's word, and must not show them what another user's processes do.
    const inSessions = table.filter(({ sid }) => claimed.has(sid));
    await mapBounded(inSessions, READS_AT_ONCE, async (entry) => {
      const run = sessions.get(sessionKey(entry.sid, await this.#uidOf(entry)));
      if (run) runOf.set(entry.pid, run);
      else strangers.push(entry);
    });
    await mapBounded(strangers, READS_AT_ONCE, async (entry) => {
      const runId = await this.#cookieOf(entry, owners);
      const run = runId === undefined ? undefined : byRunId.get(runId);
      if (run) runOf.set(entry.pid, run);
    });
    this.#forgetDead(byPid);

    const members = new Map<string, ProcessEntry[]>();
    for (const entry of table) {
      const run = nearestRun(entry, byPid, runOf);
      if (run === undefined) continue;
      const entries = members.get(run.appId);
      if (entries) entries.push(entry);
      else members.set(run.appId, [entry]);
    }
    return members;
  }

  async #readTable(): Promise<ProcessEntry[]> {
    const pids = (await readdir(this.#procDir)).map(Number).filter((pid) => Number.isInteger(pid) && pid > 1);
    const entries = await mapBounded(pids, READS_AT_ONCE, (pid) => this.#read(pid));
    return entries.filter((entry) => entry !== undefined);
  }

  async #read(pid: number): Promise<ProcessEntry | undefined> {
    try {
      const entry = parseStat(await readFile(`${this.#procDir}/${pid}/stat`, "latin1"));
      return isDead(entry) || entry.sid === 0 ? undefined : entry;
    } catch {
      return undefined;
    }
  }

  async #cookieOf(
    { pid, startTicks }: ProcessEntry,
    owners: ReadonlySet<number>,
  ): Promise<string | undefined> {
    const known = this.#cookies.get(pid);
    if (known?.startTicks === startTicks) return known.runId;
    try {
      const uid = await this.#uidOf({ pid });
      // Not remembered: the owners that are asked for differ from sample to sample.
      if (uid === undefined || !owners.has(uid)) return undefined;
      const environ = await readFile(`${this.#procDir}/${pid}/environ`, "latin1");
      const runId = cookiePattern.exec(environ)?.[1];
      this.#cookies.set(pid, { startTicks, runId });
      return runId;
    } catch {
      return undefined;
    }
  }

  /** Undefined for a process that has ended. */
  async #uidOf({ pid }: { pid: number }): Promise<number | undefined> {
    try {
      return (await stat(`${this.#procDir}/${pid}`)).uid;
    } catch {
      return undefined;
    }
  }

  #forgetDead(living: ReadonlyMap<number, unknown>): void {
    for (const pid of this.#cookies.keys()) if (!living.has(pid)) this.#cookies.delete(pid);
  }

  /** What a process has moved to and from storage (proc_pid_io(5)); undefined for one that is not ours to look into. */
  async #storageOf(pid: number): Promise<StorageUse | undefined> {
    try {
      const io = await readFile(`${this.#procDir}/${pid}/io`, "latin1");
      const read = /^read_bytes: (\d+)$/m.exec(io)?.[1];
      const written = /^write_bytes: (\d+)$/m.exec(io)?.[1];
      return read === undefined || written === undefined
        ? undefined
        : { diskReadBytes: Number(read), diskWrittenBytes: Number(written) };
    } catch {
      return undefined;
    }
  }

  async #memoryOf({ pid, rssPages }: ProcessEntry): Promise<number> {
    try {
      const rollup = await readFile(`${this.#procDir}/${pid}/smaps_rollup`, "latin1");
      const pssKib = /^Pss:\s+(\d+) kB/m.exec(rollup)?.[1];
      if (pssKib !== undefined) return Number(pssKib) * 1024;
    } catch {
      // Ended, or not ours to look into: the size of its resident pages is open to all.
    }
    return rssPages * PAGE_BYTES;
  }
}

function sessionKey(sid: number | undefined, uid: number | undefined): string {
  return `${String(sid)} of uid ${String(uid)}`;
}

/** Absent when none of the processes could be looked into. */
function totalStorage(uses: readonly StorageUse[]): StorageUse | undefined {
  if (uses.length === 0) return undefined;
  return {
    diskReadBytes: uses.reduce((sum, use) => sum + use.diskReadBytes, 0),
    diskWrittenBytes: uses.reduce((sum, use) => sum + use.diskWrittenBytes, 0),
  };
}

/** The run of a process or else of its nearest ancestor that has one. */
function nearestRun(
  entry: ProcessEntry,
  byPid: ReadonlyMap<number, ProcessEntry>,
  runOf: Map<number, SampledRun | undefined>,
): SampledRun | undefined {
  const path: number[] = [];
  let run: SampledRun | undefined;
  for (let at: ProcessEntry | undefined = entry; at !== undefined; at = byPid.get(at.ppid)) {
    if (runOf.has(at.pid)) {
      run = runOf.get(at.pid);
      break;
    }
    path.push(at.pid);
    // Guards against a cycle, which a table read while pids are reused can show.
    runOf.set(at.pid, undefined);
  }
  for (const pid of path) runOf.set(pid, run);
  return run;
}
