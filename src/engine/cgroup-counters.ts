/**
 * Reads the resource usage of a local container from the kernel: the engine would need up to a second for this
 * (20.10 samples once a second), or read the same files.
 * Kernel documents `admin-guide/cgroup-v1/{cpuacct,memory,blkio-controller}` and `admin-guide/cgroup-v2`.
 */
import { readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { withoutCache, type ContainerCounters } from "./stats-arithmetic.ts";

export interface CgroupReaderOptions {
  /** Where procfs is mounted. */
  procDir?: string;
  /** Where the control groups are mounted. */
  cgroupDir?: string;
}

export class CgroupReader {
  readonly #procDir: string;
  readonly #cgroupDir: string;

  constructor({ procDir = "/proc", cgroupDir = "/sys/fs/cgroup" }: CgroupReaderOptions = {}) {
    this.#procDir = procDir;
    this.#cgroupDir = cgroupDir;
  }

  /**
   * @param id the full container ID
   * @param pid its main process, as reported by the engine
   * @returns undefined when this is not a process of the container on this host: it ended, or the engine runs
   *   elsewhere
   */
  async read(id: string, pid: number): Promise<ContainerCounters | undefined> {
    try {
      const groups = groupsOf(await readFile(join(this.#procDir, String(pid), "cgroup"), "utf8"), id);
      const usage = groups.unified === undefined ? await this.#v1(groups) : await this.#v2(groups.unified);
      return { ...usage, ...(await this.#network(pid)) };
    } catch (error) {
      // The process ended, or this host has its control groups elsewhere.
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async #v1(groups: ContainerGroups): Promise<ContainerCounters> {
    const read = (controller: string, file: string): Promise<string> => {
      const path = groups.byController.get(controller);
      if (path === undefined) throw new MissingGroup(controller);
      return readFile(join(this.#cgroupDir, controller, path, file), "utf8");
    };
    const [cpu, memory, stat, processes, blocks] = await Promise.all([
      read("cpuacct", "cpuacct.usage"),
      read("memory", "memory.usage_in_bytes"),
      read("memory", "memory.stat"),
      optional(read("pids", "pids.current")),
      optional(read("blkio", "blkio.throttle.io_service_bytes_recursive")),
    ]);
    const sumOf = (word: string): number => sum(blocks?.matchAll(new RegExp(`^\\S+ ${word} (\\d+)$`, "gm")));
    return {
      atMs: performance.now(),
      cpuNanos: Number(cpu),
      memoryBytes: withoutCache(Number(memory), keyedNumbers(stat)),
      ...(processes !== undefined && { processes: Number(processes) }),
      blockReadBytes: sumOf("Read"),
      blockWrittenBytes: sumOf("Write"),
    };
  }

  async #v2(path: string): Promise<ContainerCounters> {
    const read = (file: string): Promise<string> => readFile(join(this.#cgroupDir, path, file), "utf8");
    const [cpu, memory, stat, processes, blocks] = await Promise.all([
      read("cpu.stat"),
      read("memory.current"),
      read("memory.stat"),
      optional(read("pids.current")),
      optional(read("io.stat")),
    ]);
    return {
      atMs: performance.now(),
      cpuNanos: (keyedNumbers(cpu)["usage_usec"] ?? 0) * 1_000,
      memoryBytes: withoutCache(Number(memory), keyedNumbers(stat)),
      ...(processes !== undefined && { processes: Number(processes) }),
      blockReadBytes: sum(blocks?.matchAll(/ rbytes=(\d+)/g)),
      blockWrittenBytes: sum(blocks?.matchAll(/ wbytes=(\d+)/g)),
    };
  }

  /** All interfaces but loopback; empty with the host's network. */
  async #network(
    pid: number,
  ): Promise<Pick<ContainerCounters, "networkReceivedBytes" | "networkSentBytes"> | undefined> {
    const namespaceOf = (process: string): Promise<string> =>
      readlink(join(this.#procDir, process, "ns/net"));
    const [own, hosts] = await Promise.all([namespaceOf(String(pid)), namespaceOf("self")]);
    if (own === hosts) return undefined;
    const table = await readFile(join(this.#procDir, String(pid), "net/dev"), "utf8");
    const rows = [...table.matchAll(/^\s*(\S+):\s*(.+)$/gm)].filter(([, name]) => name !== "lo");
    // Eight columns received, then the sent ones; bytes come first.
    const column = (at: number): number =>
      rows.reduce((total, [, , numbers = ""]) => total + Number(numbers.trim().split(/\s+/)[at]), 0);
    return { networkReceivedBytes: column(0), networkSentBytes: column(8) };
  }
}

interface ContainerGroups {
  /** Paths below the mount points of cgroup v1. */
  readonly byController: ReadonlyMap<string, string>;
  /** Path in cgroup v2; absent if v1 has the controllers. */
  readonly unified: string | undefined;
}

/** Parses `/proc/<pid>/cgroup`. A container may have nested groups: the one with its ID counts. */
function groupsOf(text: string, id: string): ContainerGroups {
  const byController = new Map<string, string>();
  let unified: string | undefined;
  for (const line of text.split("\n")) {
    const [, controllers = "", path = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    const end = path.indexOf("/", path.indexOf(id));
    if (!path.includes(id)) continue;
    const own = end === -1 ? path : path.slice(0, end);
    if (controllers === "") unified = own;
    for (const controller of controllers.split(",")) if (controller !== "") byController.set(controller, own);
  }
  if (byController.size === 0 && unified === undefined) throw new MissingGroup(id);
  // With both versions mounted, the controllers are in v1.
  return { byController, unified: byController.has("memory") ? undefined : unified };
}

class MissingGroup extends Error {
  constructor(name: string) {
    super(`no control group ${name}`);
    this.name = "MissingGroup";
  }
}

function isMissing(error: unknown): boolean {
  const { code = "" } = error as NodeJS.ErrnoException;
  return error instanceof MissingGroup || ["ENOENT", "ENODEV", "ESRCH", "EACCES", "EPERM"].includes(code);
}

/** `undefined` if the kernel does not count it. */
async function optional(text: Promise<string>): Promise<string | undefined> {
  try {
    return await text;
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Parses lines of a word and a number. */
function keyedNumbers(text: string): Record<string, number> {
  return Object.fromEntries(
    [...text.matchAll(/^(\S+) (\d+)$/gm)].map(([, key = "", value]) => [key, Number(value)]),
  );
}

function sum(matches: Iterable<RegExpMatchArray> = []): number {
  return [...matches].reduce((total, [, number]) => total + Number(number), 0);
}
