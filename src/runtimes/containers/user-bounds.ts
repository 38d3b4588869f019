/**
 * Limits of what the containers of regular users may cost the engine, the kernel and the host's memory. Each function
 * returns what exceeds its limit; it completes "the container …" or `service "web" …`.
 */
import { descriptionBytes } from "../../engine/engine-objects.ts";
import type { JsonValue } from "../../lib/json.ts";
import { maxProcesses } from "../../sys/user-processes.ts";
import { bytesOf } from "../compose/compose-values.ts";
import { countPorts, readServicePort } from "../compose/service-ports.ts";

const mib = 2 ** 20;

const bounds = {
  /** All log files of a container. */
  logBytes: 500 * mib,
  /** When a file is full, the engine renames all of them, and meanwhile neither stops nor shows the container. */
  logFiles: 100,
  /** Minimum size of a log file: smaller ones would be full all the time. */
  logFileBytes: 4 * 1024,
  /** The engine allocates it per container and keeps it. */
  logBufferBytes: 4 * mib,
  /** All in-memory file systems of a container: their files outlive the processes that wrote them. */
  inMemoryBytes: 2 * 2 ** 30,
  /** The engine starts a process for each check. */
  checkIntervalSecs: 1,
  /** Maximum interval and duration of a check. */
  checkSecs: 3_600,
  checkRetries: 1_000,
  /** Three events of the engine repeat the command of each check. */
  checkBytes: 4 * 1024,
  /** Each has an entry in every list of the engine's containers. */
  exposedPorts: 512,
  /** Also the maximum number of volumes of an image, because each is a mount of every container of the image. */
  mounts: 64,
};

/** @param ports such as `80` or `8000-8010/udp` */
export function excessOfExposed(ports: readonly string[]): string[] {
  const count = ports.reduce((sum, port) => sum + countPorts(readServicePort(port)), 0);
  return count <= bounds.exposedPorts ? [] : [`exposes ${count} ports, more than ${bounds.exposedPorts}`];
}

/** @param what what is counted, in the plural */
export function excessOfMounts(count: number, what: string): string[] {
  return count <= bounds.mounts ? [] : [`has ${count} ${what}, more than ${bounds.mounts}`];
}

/** Default size of an in-memory file system: the kernel's default is half of the host's memory. */
export const defaultInMemoryBytes = 256 * mib;

/** Default log options. */
export const defaultLogOptions: Readonly<Record<string, string>> = { "max-size": "10m", "max-file": "5" };

/**
 * Default of the driver `local`; `json-file` always gets a size
 * (https://docs.docker.com/engine/logging/drivers/local/).
 */
const localLogSize = "20m";

const logOptions = new Set(["max-size", "max-file", "mode", "max-buffer-size", "compress"]);

/** @param options of the driver `json-file` or `local` */
export function excessOfLog(options: Readonly<Record<string, string>>): string[] {
  const odd = Object.keys(options).filter((name) => !logOptions.has(name));
  const {
    "max-size": size = localLogSize,
    "max-file": files = "1",
    "max-buffer-size": buffer = "1m",
  } = options;
  const excess = odd.map((name) => `sets the log option "${name}"`);
  const total = bytesOf(size) * wholeNumber(files);
  if (!(total > 0 && total <= bounds.logBytes)) {
    excess.push(
      `keeps ${files} log files of ${size} ("max-file", "max-size"), more than ${bounds.logBytes} bytes`,
    );
  }
  if (wholeNumber(files) > bounds.logFiles)
    excess.push(`keeps ${files} log files ("max-file"), more than ${bounds.logFiles}`);
  if (bytesOf(size) < bounds.logFileBytes)
    excess.push(`has log files of ${size} ("max-size"), less than ${bounds.logFileBytes} bytes`);
  if (!(bytesOf(buffer) <= bounds.logBufferBytes)) {
    excess.push(`buffers ${buffer} of its log ("max-buffer-size"), more than ${bounds.logBufferBytes} bytes`);
  }
  return excess;
}

/**
 * The largest value of each limit. Limits that are missing are not for users: they would raise priorities (`nice`,
 * `rtprio`, `rttime`) or use kernel memory (`memlock`, `msgqueue`, `sigpending`). Limits without a maximum only
 * restrict, and the engine sets none itself. Source: getrlimit(2).
 */
const limitBounds: Readonly<Record<string, number>> = {
  nofile: 1_048_576,
  nproc: maxProcesses,
  ...{ as: Infinity, core: Infinity, cpu: Infinity, data: Infinity, fsize: Infinity },
  ...{ locks: Infinity, rss: Infinity, stack: Infinity },
};

/** @param values soft and hard limit, as text */
export function excessOfLimit(name: string, values: readonly string[]): string[] {
  const most = Object.hasOwn(limitBounds, name) ? limitBounds[name] : undefined;
  if (most === undefined) return [`sets the limit "${name}"`];
  return values
    .filter((value) => !isWithin(value, most))
    .map((value) => `sets the limit "${name}" to ${value}, more than ${most}`);
}

/** -1 means unlimited. */
function isWithin(value: string, most: number): boolean {
  if (value === "-1") return most === Infinity;
  return wholeNumber(value) <= most;
}

const inMemoryFlags = new Set(["rw", "ro", "exec", "noexec", "nosuid", "nodev", "noatime"]);

/** Adds a size to the options of an in-memory file system without one. @param words `size=64m,mode=1777` */
export function sizedInMemory(words: string): string {
  if (/(?:^|,)size=/.test(words)) return words;
  return [...(words === "" ? [] : [words]), `size=${defaultInMemoryBytes}`].join(",");
}

/**
 * @param mounts options of one container's in-memory file systems, such as `size=64m,mode=1777`; without a size, the
 *   default counts
 */
export function excessOfInMemory(mounts: readonly string[]): string[] {
  const excess: string[] = [];
  let total = 0;
  for (const words of mounts) {
    const sizes: string[] = [];
    for (const word of words.split(",").filter((part) => part !== "")) {
      const [name = "", value] = word.split("=");
      if (name === "size" && value !== undefined) sizes.push(value);
      else if (!inMemoryFlags.has(word) && !/^(mode|uid|gid)=[0-7]+$|^(uid|gid)=\d+$/.test(word)) {
        excess.push(`mounts an in-memory file system with "${word}"`);
      }
    }
    const bytes = sizes.length === 0 ? [defaultInMemoryBytes] : sizes.map(bytesOf);
    // Zero means unlimited.
    const bad = sizes.find((size) => !(bytesOf(size) > 0));
    if (bad !== undefined) excess.push(`sets the size of an in-memory file system to ${bad} bytes`);
    // The kernel uses the last of several sizes; assuming the largest is safe.
    total += Math.max(...bytes);
  }
  if (!(total <= bounds.inMemoryBytes) && excess.length === 0) {
    excess.push(`uses ${total} bytes for in-memory file systems, more than ${bounds.inMemoryBytes}`);
  }
  return excess;
}

/** Times in seconds; a missing one means the engine's default. */
export interface HealthCheck {
  readonly interval?: number | undefined;
  readonly startInterval?: number | undefined;
  readonly timeout?: number | undefined;
  readonly startPeriod?: number | undefined;
  readonly retries?: number | undefined;
  /** As the engine or a compose file has it. */
  readonly command?: JsonValue | undefined;
}

export function excessOfHealth(check: HealthCheck): string[] {
  const { interval, startInterval, timeout, startPeriod, retries, command } = check;
  const excess: string[] = [];
  for (const [secs, name] of [
    [interval, "interval"],
    [startInterval, "start_interval"],
  ] as const) {
    if (secs !== undefined && !(secs >= bounds.checkIntervalSecs)) {
      excess.push(
        `checks its health every ${secs}s ("${name}"), more often than every ${bounds.checkIntervalSecs}s`,
      );
    }
  }
  for (const [secs, name] of [
    [timeout, "timeout"],
    [startPeriod, "start_period"],
  ] as const) {
    if (secs !== undefined && !(secs <= bounds.checkSecs)) {
      excess.push(`gives its health check ${secs}s ("${name}"), more than ${bounds.checkSecs}s`);
    }
  }
  if (retries !== undefined && !(retries <= bounds.checkRetries)) {
    excess.push(`tries its health check ${retries} times ("retries"), more than ${bounds.checkRetries}`);
  }
  const commandBytes = command === undefined ? 0 : descriptionBytes(command);
  if (commandBytes > bounds.checkBytes) {
    excess.push(`has a health check of ${commandBytes} bytes ("test"), more than ${bounds.checkBytes}`);
  }
  return excess;
}

/** NaN for text that is not a whole number. */
function wholeNumber(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : Number.NaN;
}
