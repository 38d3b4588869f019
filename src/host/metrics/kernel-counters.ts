/**
 * The kernel's counters of the whole host (proc(5), kernel documents `admin-guide/iostats`,
 * `accounting/psi`, `hwmon/sysfs-interface`). The files are small and never wait for a device, so they are read
 * synchronously, in well under a millisecond. Unreadable values are absent.
 */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** Clock ticks of one CPU since the host started, by kind of work. */
export interface ProcessorTicks {
  readonly user: number;
  readonly system: number;
  readonly idle: number;
  readonly iowait: number;
  readonly irq: number;
  readonly steal: number;
}

export interface DiskCounters {
  readonly name: string;
  readonly reads: number;
  readonly writes: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly busyMs: number;
}

export interface InterfaceCounters {
  readonly name: string;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  readonly errors: number;
  readonly dropped: number;
}

export interface Pressure {
  readonly some10: number;
  readonly some60: number;
  readonly some300: number;
  readonly full10?: number;
  readonly full60?: number;
  readonly full300?: number;
}

export interface KernelCounters {
  readonly processor: ProcessorTicks;
  /** By CPU number. */
  readonly cores: readonly ProcessorTicks[];
  readonly load: readonly [number, number, number];
  /** `/proc/meminfo` in bytes, by its names. */
  readonly memory: Readonly<Record<string, number>>;
  readonly pressure: { readonly cpu?: Pressure; readonly memory?: Pressure; readonly io?: Pressure };
  readonly disks: readonly DiskCounters[];
  readonly interfaces: readonly InterfaceCounters[];
  readonly temperatures: readonly { readonly name: string; readonly celsius: number }[];
  readonly uptimeSecs: number;
}

export interface KernelReaderOptions {
  procDir?: string;
  sysDir?: string;
}

/** The unit of `/proc/diskstats`, independent of the disk's sector size. */
const sectorBytes = 512;

export class KernelReader {
  readonly #procDir: string;
  readonly #sysDir: string;

  constructor({ procDir = "/proc", sysDir = "/sys" }: KernelReaderOptions = {}) {
    this.#procDir = procDir;
    this.#sysDir = sysDir;
  }

  /** @throws Error where `/proc/stat`, `loadavg`, `meminfo` or `uptime` is missing, which means that this is not Linux */
  read(): KernelCounters {
    const [processor, ...cores] = processorTicks(this.#proc("stat"));
    if (processor === undefined) throw new Error("/proc/stat has no CPU counters");
    const [load1 = 0, load5 = 0, load15 = 0] = this.#proc("loadavg").split(" ").map(Number);
    const [cpu, memory, io] = ["cpu", "memory", "io"].map((name) => this.#pressure(name));
    return {
      processor,
      cores,
      load: [load1, load5, load15],
      memory: memoryBytes(this.#proc("meminfo")),
      pressure: { ...(cpu && { cpu }), ...(memory && { memory }), ...(io && { io }) },
      disks: this.#disks(),
      interfaces: interfaceCounters(optional(() => this.#proc("net/dev"))),
      temperatures: this.#temperatures(),
      uptimeSecs: Number.parseFloat(this.#proc("uptime")),
    };
  }

  #proc(name: string): string {
    return readFileSync(join(this.#procDir, name), "latin1");
  }

  #sys(...path: string[]): string {
    return readFileSync(join(this.#sysDir, ...path), "latin1").trim();
  }

  #pressure(resource: string): Pressure | undefined {
    const text = optional(() => this.#proc(`pressure/${resource}`));
    const averages = (kind: string): number[] | undefined =>
      new RegExp(`^${kind} avg10=(\\S+) avg60=(\\S+) avg300=(\\S+)`, "m").exec(text)?.slice(1).map(Number);
    const [some10, some60, some300] = averages("some") ?? [];
    if (some10 === undefined || some60 === undefined || some300 === undefined) return undefined;
    const [full10, full60, full300] = averages("full") ?? [];
    return {
      ...{ some10, some60, some300 },
      ...(full10 !== undefined && { full10 }),
      ...(full60 !== undefined && { full60 }),
      ...(full300 !== undefined && { full300 }),
    };
  }

  /** `/sys/block` lists only whole disks. Loop and RAM disks are backed by files that are counted elsewhere. */
  #disks(): DiskCounters[] {
    const whole = new Set(optional(() => readdirSync(join(this.#sysDir, "block")), []));
    const disks: DiskCounters[] = [];
    for (const line of optional(() => this.#proc("diskstats")).split("\n")) {
      const fields = line.trim().split(/\s+/);
      const name = fields[2];
      if (name === undefined || !whole.has(name) || /^(loop|ram|zram)\d/.test(name)) continue;
      const field = (n: number): number => Number(fields[n]);
      disks.push({
        name,
        reads: field(3),
        readBytes: field(5) * sectorBytes,
        writes: field(7),
        writtenBytes: field(9) * sectorBytes,
        busyMs: field(12),
      });
    }
    return disks;
  }

  #temperatures(): { name: string; celsius: number }[] {
    return optional(() => readdirSync(join(this.#sysDir, "class/hwmon")), []).flatMap((chip) => {
      const files = optional(() => readdirSync(join(this.#sysDir, "class/hwmon", chip)), []);
      return files
        .filter((file) => /^temp\d+_input$/.test(file))
        .flatMap((file) => {
          const read = (other: string): string => optional(() => this.#sys("class/hwmon", chip, other));
          const milli = read(file);
          const label = read(file.replace("_input", "_label"));
          const name = `${read("name")} ${label}`.trim();
          return /^-?\d+$/.test(milli) ? [{ name, celsius: Number(milli) / 1000 }] : [];
        });
    });
  }
}

/** The total, then each CPU by number. A CPU that is offline is missing. */
function processorTicks(stat: string): ProcessorTicks[] {
  return [...stat.matchAll(/^cpu\d* +(.+)$/gm)].map(([, numbers = ""]) => {
    // The time of guests is already part of user and nice (proc(5)).
    const [user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0] = numbers
      .split(" ")
      .map(Number);
    return { user: user + nice, system, idle, iowait, irq: irq + softirq, steal };
  });
}

function memoryBytes(meminfo: string): Record<string, number> {
  const entries = [...meminfo.matchAll(/^([^:]+): +(\d+) kB$/gm)];
  return Object.fromEntries(entries.map(([, name = "", kib]) => [name, Number(kib) * 1024]));
}

/** All but loopback. */
function interfaceCounters(dev: string): InterfaceCounters[] {
  return [...dev.matchAll(/^\s*(\S+?):\s*(.+)$/gm)].flatMap(([, name = "", numbers = ""]) => {
    if (name === "lo") return [];
    const field = numbers.trim().split(/\s+/).map(Number);
    const at = (n: number): number => field[n] ?? 0;
    return [
      {
        name,
        receivedBytes: at(0),
        sentBytes: at(8),
        errors: at(2) + at(10),
        dropped: at(3) + at(11),
      },
    ];
  });
}

/** Empty if the kernel does not have or does not show the file. */
function optional(read: () => string): string;
function optional<T>(read: () => T, otherwise: T): T;
function optional<T>(read: () => T | string, otherwise: T | string = ""): T | string {
  try {
    return read();
  } catch {
    return otherwise;
  }
}
