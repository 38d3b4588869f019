/** Figures of the host as vmstat, df, ip, ps and awk read them, in the units of svc. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Each is printed under its name. */
const commands = {
  vmstat: "vmstat -s",
  memory: String.raw`awk '{printf "%s %.0f\n", $1, $2 * 1024}' /proc/meminfo`,
  cores: "grep '^cpu' /proc/stat",
  load: "cat /proc/loadavg",
  pressure: "grep . /proc/pressure/* 2>/dev/null",
  filesystems: "df -B1 --output=target,size,used,avail,itotal,iused 2>/dev/null",
  disks: "vmstat -d | tail -n +3",
  busy: "awk '{print $3, $13}' /proc/diskstats",
  interfaces: "ip -s -s -j link",
  processes: "ps -e --no-headers | wc -l",
  uptime: "cat /proc/uptime",
  temperatures: "cat /sys/class/hwmon/*/temp*_input 2>/dev/null",
};
const script = Object.entries({ ...commands, end: "true" })
  .map(([name, command]) => `echo '== ${name}'; ${command}`)
  .join("\n");

/** Clock ticks, in the order of proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal. */
export type Ticks = readonly number[];

export interface OtherFigures {
  /** The time range of these readings, unix milliseconds. */
  readonly beganMs: number;
  readonly endedMs: number;
  readonly processor: Ticks;
  readonly cores: readonly Ticks[];
  /** By the kernel's names, in bytes. */
  readonly memory: ReadonlyMap<string, number>;
  readonly load: readonly number[];
  /** By file and kind, such as `cpu some`: averages over 10, 60 and 300 seconds. */
  readonly pressure: ReadonlyMap<string, readonly number[]>;
  /** By path: size, used, available, inodes, inodes in use. */
  readonly filesystems: ReadonlyMap<string, readonly number[]>;
  /** Reads, bytes read, writes, bytes written since the host started. */
  readonly disks: ReadonlyMap<string, readonly number[]>;
  /** Milliseconds in which a disk was busy. */
  readonly busyMs: ReadonlyMap<string, number>;
  /** Bytes received and sent, errors, dropped packets. */
  readonly interfaces: ReadonlyMap<string, readonly number[]>;
  readonly processes: number;
  readonly uptimeSecs: number;
  readonly temperatures: readonly number[];
}

export async function readOtherFigures(): Promise<OtherFigures> {
  const beganMs = Date.now();
  const { stdout } = await run("sh", ["-c", script], { env: { ...process.env, LC_ALL: "C" } });
  const endedMs = Date.now();
  const parts = new Map(
    stdout
      .split(/^== /m)
      .slice(1)
      .map((part) => [part.slice(0, part.indexOf("\n")), part.slice(part.indexOf("\n") + 1).trimEnd()]),
  );
  const lines = (name: keyof typeof commands): string[][] =>
    (parts.get(name) ?? "")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => line.trim().split(/\s+/));
  const [, ...cores] = lines("cores").map(([, ...ticks]) => ticks.map(Number));
  return {
    beganMs,
    endedMs,
    processor: ticksOfVmstat(parts.get("vmstat") ?? ""),
    cores,
    memory: new Map(lines("memory").map(([name = "", bytes]) => [name.replace(":", ""), Number(bytes)])),
    load: (lines("load")[0] ?? []).slice(0, 3).map(Number),
    pressure: new Map(
      lines("pressure").map(([head = "", ...averages]) => [
        head.replace(/^.*\/(\w+):(\w+)$/, "$1 $2"),
        averages.slice(0, 3).map((average) => Number(average.split("=")[1])),
      ]),
    ),
    filesystems: new Map(
      lines("filesystems").map((fields) => [
        fields.slice(0, -5).join(" "),
        fields.slice(-5).map((field) => (field === "-" ? 0 : Number(field))),
      ]),
    ),
    disks: new Map(
      lines("disks").map(([name = "", reads, , readSectors, , writes, , writtenSectors]) => [
        name,
        [Number(reads), Number(readSectors) * 512, Number(writes), Number(writtenSectors) * 512],
      ]),
    ),
    busyMs: new Map(lines("busy").map(([name = "", ms]) => [name, Number(ms)])),
    interfaces: new Map(
      (JSON.parse(parts.get("interfaces") ?? "[]") as IpLink[]).map(({ ifname, stats64: { rx, tx } }) => [
        ifname,
        [
          rx["bytes"] ?? 0,
          tx["bytes"] ?? 0,
          (rx["errors"] ?? 0) + (tx["errors"] ?? 0),
          (rx["dropped"] ?? 0) + (rx["missed_errors"] ?? 0) + (tx["dropped"] ?? 0),
        ],
      ]),
    ),
    processes: Number(parts.get("processes")),
    uptimeSecs: Number.parseFloat(parts.get("uptime") ?? ""),
    temperatures: lines("temperatures").map(([milli]) => Number(milli) / 1000),
  };
}

interface IpLink {
  readonly ifname: string;
  readonly stats64: { readonly rx: Record<string, number>; readonly tx: Record<string, number> };
}

function ticksOfVmstat(text: string): Ticks {
  const ticksOf = (what: string): number =>
    Number(new RegExp(`^\\s*(\\d+) ${what} cpu ticks$`, "m").exec(text)?.[1]);
  return ["non-nice user", "nice user", "system", "idle", "IO-wait", "IRQ", "softirq"]
    .map(ticksOf)
    .concat(Number(/^\s*(\d+) stolen cpu ticks$/m.exec(text)?.[1]));
}
