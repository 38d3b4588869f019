/**
 * Reads every process of the host in one pass over `/proc`, with synchronous calls and one buffer, which takes less than half
 * the time of asynchronous calls. Only for the host thread, which may block.
 */
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { uptime } from "node:os";
import { listPids, parseStat, type ProcessEntry } from "../../sys/process-table.mjs";
import { carriedRunId } from "../../sys/run-cookie.mjs";
import { membersOf } from "../../sys/run-membership.ts";
import type { ProcessOrigin } from "../../sys/proc-reader.ts";
import { ProcessMemo } from "./process-memo.ts";
import type { HostProcess, KnownApps, ProcessOwner } from "./process-questions.ts";

/** A process with the values of `/proc/<pid>/stat`. */
export interface ScannedProcess extends ProcessEntry {
  readonly name: string;
  readonly uid: number;
}

interface CpuReading {
  readonly startTicks: number;
  readonly cpuTicks: number;
}

/** CPU time of all processes at one moment. */
interface CpuReadings {
  readonly atMs: number;
  readonly byPid: ReadonlyMap<number, CpuReading>;
}

/** `USER_HZ`, 100 on every architecture that Node supports. */
const ticksPerSecond = 100;
const pageBytes = 4096;
const maxCommandBytes = 4096;
/** The name that Node gives its main thread, which the kernel shows as the name of the process. */
const nodeThreadName = "MainThread";
/** Shortest interval for shares of CPU time, because the kernel counts in hundredths of a second. */
const leastWindowMs = 500;
/** Older readings are not used for current shares. */
const mostWindowMs = 10_000;
/** Interval to wait if there is no earlier reading. */
const coldWindowMs = 200;
/** A process is moved into its control group right after its start, so an early reading is valid only briefly. */
const settledSecs = 3;
const groupsMs = 60_000;
const pause = new Int32Array(new SharedArrayBuffer(4));

export class ProcessScan {
  readonly #buffer = Buffer.allocUnsafe(64 * 1024);
  /** The environment of a process does not change after its start. */
  readonly #cookies = new ProcessMemo<string | undefined>();
  readonly #groups = new ProcessMemo<string | undefined>();
  /** Names of processes for which the kernel shows only a thread name. */
  readonly #names = new ProcessMemo<string>();
  /** The last reading, and the last one that is old enough to compare with. */
  #base: CpuReadings | undefined;
  #latest: CpuReadings | undefined;

  processes(known: KnownApps): HostProcess[] {
    if (this.#latest === undefined || performance.now() - this.#latest.atMs > mostWindowMs) {
      this.#remember(this.#scanAll());
      Atomics.wait(pause, 0, 0, coldWindowMs);
    }
    const table = this.#scanAll();
    const since = this.#remember(table);
    const pids = new Set(table.map(({ pid }) => pid));
    this.#cookies.retain(pids);
    this.#groups.retain(pids);
    this.#names.retain(pids);
    const apps = this.#appsOf(table, known);
    const nowMs = performance.now();
    return table.map((process) => {
      const { pid, ppid, name, uid, state, startTicks, cpuTicks, rssPages, isKernelThread } = process;
      const before = since.byPid.get(pid);
      const ticks = before?.startTicks === startTicks ? cpuTicks - before.cpuTicks : 0;
      const secs = Math.max(1, nowMs - since.atMs) / 1000;
      return {
        ...{ pid, name, uid, state, startTicks, isKernelThread },
        parentPid: ppid,
        command: isKernelThread ? "" : this.#command(pid),
        cpuPercent: Math.round(((Math.max(0, ticks) / ticksPerSecond) * 1000) / secs) / 10,
        rssBytes: rssPages * pageBytes,
        ...this.#belongs(process, apps, known),
      };
    });
  }

  /** The owners of these processes, by pid; processes that ended are absent. */
  owners(pids: Iterable<number>, known: KnownApps): Map<number, ProcessOwner> {
    const table = new Map<number, ScannedProcess>();
    const scanned: ScannedProcess[] = [];
    for (const pid of pids) {
      const process = this.#withAncestors(pid, table);
      if (process !== undefined) scanned.push(process);
    }
    const apps = this.#appsOf([...table.values()], known);
    return new Map(
      scanned.map((process) => {
        const { pid, name, uid } = process;
        return [pid, { ...{ pid, name, uid }, ...this.#belongs(process, apps, known) }];
      }),
    );
  }

  #withAncestors(pid: number, table: Map<number, ScannedProcess>): ScannedProcess | undefined {
    const process = table.get(pid) ?? this.#scan(pid);
    for (let at = process; at !== undefined && !table.has(at.pid); at = this.#scan(at.ppid))
      table.set(at.pid, at);
    return process;
  }

  #scanAll(): ScannedProcess[] {
    return listPids().flatMap((pid) => this.#scan(pid) ?? []);
  }

  #scan(pid: number): ScannedProcess | undefined {
    try {
      const text = this.#read(pid, "stat").toString("latin1");
      const entry = parseStat(text);
      // The directory belongs to the user that the process acts as; its files may belong to root.
      const { uid } = statSync(`/proc/${pid}`);
      const name = Buffer.from(text.slice(text.indexOf("(") + 1, text.lastIndexOf(")")), "latin1").toString();
      return { ...entry, name: name === nodeThreadName ? this.#programName(entry) : name, uid };
    } catch {
      return undefined;
    }
  }

  /** Stores a reading. Returns the earlier reading to compare it with. */
  #remember(table: readonly ScannedProcess[]): CpuReadings {
    const byPid = new Map(table.map(({ pid, startTicks, cpuTicks }) => [pid, { startTicks, cpuTicks }]));
    const now = { atMs: performance.now(), byPid };
    if (this.#latest === undefined) this.#latest = now;
    const since = now.atMs - this.#latest.atMs;
    if (since > mostWindowMs) this.#base = undefined;
    else if (since >= leastWindowMs || this.#base === undefined) this.#base = this.#latest;
    if (since >= leastWindowMs || since === 0 || since > mostWindowMs) this.#latest = now;
    return this.#base ?? this.#latest;
  }

  #appsOf(table: readonly ScannedProcess[], { runs }: KnownApps): Map<number, string> {
    if (runs.length === 0) return new Map();
    const owners = new Set(runs.map(({ ownerUid }) => ownerUid));
    const origins = new Map<number, ProcessOrigin>();
    for (const process of table) {
      const { pid, uid } = process;
      origins.set(pid, { uid, runId: owners.has(uid) ? this.#runIdOf(process) : undefined });
    }
    const apps = new Map<number, string>();
    for (const [appId, members] of membersOf(runs, table, origins))
      for (const { pid } of members) apps.set(pid, appId);
    return apps;
  }

  #runIdOf(process: ProcessEntry): string | undefined {
    return this.#cookies.get(process, () => ({
      value: this.#optional(process.pid, "environ", (environ) => carriedRunId(environ)),
      forMs: Infinity,
    }));
  }

  /** The process's control groups, as text. */
  #groupsOf(process: ProcessEntry): string | undefined {
    return this.#groups.get(process, () => ({
      value: this.#optional(process.pid, "cgroup", (bytes) => bytes.toString()),
      forMs: uptime() - process.startTicks / ticksPerSecond < settledSecs ? 0 : groupsMs,
    }));
  }

  #belongs(
    process: ScannedProcess,
    apps: ReadonlyMap<number, string>,
    { controlGroups }: KnownApps,
  ): Pick<ProcessOwner, "appId" | "containerId"> {
    const appId = apps.get(process.pid);
    if (appId !== undefined) return { appId };
    const text = process.isKernelThread ? undefined : this.#groupsOf(process);
    if (text === undefined) return {};
    const ofUnit = controlGroups.size === 0 ? undefined : appOfGroup(text, controlGroups);
    if (ofUnit !== undefined) return { appId: ofUnit };
    const containerId = /[0-9a-f]{64}/.exec(text)?.[0];
    return containerId === undefined ? {} : { containerId };
  }

  /** The name of the executable, such as `node`. */
  #programName(process: ProcessEntry): string {
    return this.#names.get(process, () => {
      const [first = ""] = this.#command(process.pid).split(" ");
      return { value: first.slice(first.lastIndexOf("/") + 1) || nodeThreadName, forMs: groupsMs };
    });
  }

  #command(pid: number): string {
    const command = this.#optional(pid, "cmdline", (bytes) =>
      bytes.subarray(0, maxCommandBytes).toString().replaceAll("\0", " ").trimEnd(),
    );
    return command ?? "";
  }

  #optional<T>(pid: number, file: string, use: (bytes: Buffer) => T): T | undefined {
    try {
      return use(this.#read(pid, file));
    } catch {
      return undefined;
    }
  }

  /** The start of a file of a process, valid until the next read. @throws if it cannot be read */
  #read(pid: number, file: string): Buffer {
    const fd = openSync(`/proc/${pid}/${file}`, "r");
    try {
      return this.#buffer.subarray(0, readSync(fd, this.#buffer, 0, this.#buffer.length, 0));
    } finally {
      closeSync(fd);
    }
  }
}

/**
 * The app of a control group or of the nearest parent, in the hierarchy of systemd (cgroups(7)). The full path counts, because a
 * user's own systemd can have a unit of the same name, but a user cannot move a process into a group of another user.
 */
function appOfGroup(text: string, controlGroups: ReadonlyMap<string, string>): string | undefined {
  for (const [, path = ""] of text.matchAll(/^(?:0:|\d+:name=systemd):(.+)$/gm)) {
    for (let end = path.length; end > 0; end = path.lastIndexOf("/", end - 1)) {
      const appId = controlGroups.get(path.slice(0, end));
      if (appId !== undefined) return appId;
    }
  }
  return undefined;
}
