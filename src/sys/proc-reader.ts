import { statSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { setImmediate as othersTurn } from "node:timers/promises";
import { mapBounded } from "../lib/map-bounded.ts";
import { readProcFile } from "./proc-file.mjs";
import { isDead, parseStat, type ProcessEntry } from "./process-table.mjs";
import { carriedRunId } from "./run-cookie.mjs";

/** Where a process comes from. */
export interface ProcessOrigin {
  uid: number;
  /** Run ID from the cookie in its environment, if it has one. */
  runId: string | undefined;
}

/** Bytes that a process has read from and written to storage (proc_pid_io(5)). */
export interface StorageUse {
  diskReadBytes: number;
  diskWrittenBytes: number;
}

const pageBytes = 4096;
const readsAtOnce = 64;
/** Processes that are read before other work runs: less than a millisecond. */
const readsPerTurn = 32;
/** Longer than any line of `/proc/<pid>/stat`. */
const statBytes = 2048;
/** `smaps_rollup` walks page tables in the kernel, so only a few run at a time, to leave capacity for other reads. */
const memoryReadsAtOnce = 2;

/**
 * Reads data about many processes. Processes that have exited, or that may not be read, are missing from the results.
 * When the signal aborts, no further process is read; a promise resolves only when none of its reads is running.
 */
export class ProcReader {
  readonly #procDir: string;
  readonly #buffer = Buffer.allocUnsafe(statBytes);
  /** Cached cookies; a process keeps its cookie for life. */
  readonly #cookies = new Map<number, { startTicks: number; runId: string | undefined }>();

  constructor(procDir = "/proc") {
    this.#procDir = procDir;
  }

  /** Every living process except init and kernel threads. */
  async readTable(signal: AbortSignal): Promise<ProcessEntry[]> {
    const names = await readdir(this.#procDir);
    const pids = names.map(Number).filter((pid) => Number.isInteger(pid) && pid > 1);
    const table = await readEachSync(pids, signal, (pid) => this.#entryOf(pid));
    return [...table.values()];
  }

  /** Reads the entries of processes again; by PID. */
  async readAgain(entries: readonly ProcessEntry[], signal: AbortSignal): Promise<Map<number, ProcessEntry>> {
    const startTicks = new Map(entries.map((entry) => [entry.pid, entry.startTicks]));
    const pids = [...startTicks.keys()];
    return readEachSync(pids, signal, (pid) => {
      const entry = this.#entryOf(pid);
      return entry?.startTicks === startTicks.get(pid) ? entry : undefined;
    });
  }

  /**
   * By PID.
   * @param table all processes
   * @param owners users whose processes' cookies are read
   */
  async readOrigins(
    table: readonly ProcessEntry[],
    owners: ReadonlySet<number>,
    signal: AbortSignal,
  ): Promise<Map<number, ProcessOrigin>> {
    const byPid = new Map(table.map((entry) => [entry.pid, entry]));
    for (const pid of this.#cookies.keys()) if (!byPid.has(pid)) this.#cookies.delete(pid);
    const uids = await readEachSync(
      [...byPid.keys()],
      signal,
      (pid) => statSync(`${this.#procDir}/${pid}`).uid,
    );
    const matchingPids = [...uids].filter(([, uid]) => owners.has(uid)).map(([pid]) => pid);
    const runIds = await readEach(matchingPids, readsAtOnce, signal, (pid) =>
      this.#cookieOf(pid, byPid.get(pid)?.startTicks ?? 0),
    );
    return new Map([...uids].map(([pid, uid]) => [pid, { uid, runId: runIds.get(pid) }]));
  }

  /** Bytes by PID: the proportional set size, or else the resident set size, which every user may read. */
  async readMemory(entries: readonly ProcessEntry[], signal: AbortSignal): Promise<Map<number, number>> {
    const residentPages = new Map(entries.map(({ pid, rssPages }) => [pid, rssPages]));
    const pids = [...residentPages.keys()];
    return readEach(pids, memoryReadsAtOnce, signal, async (pid) => {
      const rollup = await readFile(`${this.#procDir}/${pid}/smaps_rollup`, "latin1").catch(() => "");
      const pssKib = /^Pss:\s+(\d+) kB/m.exec(rollup)?.[1];
      return pssKib === undefined ? (residentPages.get(pid) ?? 0) * pageBytes : Number(pssKib) * 1024;
    });
  }

  /** By PID. */
  async readStorage(entries: readonly ProcessEntry[], signal: AbortSignal): Promise<Map<number, StorageUse>> {
    const pids = entries.map(({ pid }) => pid);
    return readEach(pids, readsAtOnce, signal, async (pid) => {
      const io = await readFile(`${this.#procDir}/${pid}/io`, "latin1");
      const read = /^read_bytes: (\d+)$/m.exec(io)?.[1];
      const written = /^write_bytes: (\d+)$/m.exec(io)?.[1];
      return read === undefined || written === undefined
        ? undefined
        : { diskReadBytes: Number(read), diskWrittenBytes: Number(written) };
    });
  }

  #entryOf(pid: number): ProcessEntry | undefined {
    const entry = parseStat(readProcFile(`${this.#procDir}/${pid}/stat`, this.#buffer).toString("latin1"));
    return isDead(entry) || entry.sid === 0 ? undefined : entry;
  }

  async #cookieOf(pid: number, startTicks: number): Promise<string | undefined> {
    const known = this.#cookies.get(pid);
    if (known?.startTicks === startTicks) return known.runId;
    try {
      const runId = carriedRunId(await readFile(`${this.#procDir}/${pid}/environ`));
      this.#cookies.set(pid, { startTicks, runId });
      return runId;
    } catch {
      return undefined;
    }
  }
}

/**
 * Returns results by PID, without processes that have exited. Synchronous, which takes a fifth of the time of promises:
 * for data that the kernel returns without waiting for the process. Memory is not such data.
 */
async function readEachSync<T>(
  pids: readonly number[],
  signal: AbortSignal,
  read: (pid: number) => T | undefined,
): Promise<Map<number, T>> {
  const found = new Map<number, T>();
  for (const [index, pid] of pids.entries()) {
    if (index % readsPerTurn === readsPerTurn - 1) await othersTurn();
    if (signal.aborted) break;
    try {
      const value = read(pid);
      if (value !== undefined) found.set(pid, value);
    } catch {
      // The process has exited.
    }
  }
  return found;
}

/** Returns results by PID, without processes that could not be read. */
async function readEach<T>(
  pids: readonly number[],
  limit: number,
  signal: AbortSignal,
  read: (pid: number) => Promise<T | undefined>,
): Promise<Map<number, T>> {
  const found = new Map<number, T>();
  await mapBounded(pids, limit, async (pid) => {
    if (signal.aborted) return;
    const value = await read(pid).catch(() => undefined);
    if (value !== undefined) found.set(pid, value);
  });
  return found;
}
