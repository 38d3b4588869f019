/** Sockets that wait for others, from the kernel's tables, and the processes that hold them. For the host's thread alone. */
import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { endianness } from "node:os";
import { socketsIn } from "../lib/listening-sockets.mjs";
import { listPids, readProcess } from "../lib/process-table.mjs";
import type { ProcessScan } from "./process-scan.ts";
import type { HostSocket, KnownApps } from "./process-questions.ts";

interface TableRow {
  readonly protocol: "tcp" | "udp";
  readonly address: string;
  readonly port: number;
  readonly uid: number;
  readonly inode: number;
}

/** Where a socket was seen; `pid` undefined: nobody had it when all were looked at. */
interface Holder {
  readonly pid: number | undefined;
  readonly startTicks: number;
  readonly fd: string;
}

const tables = [
  ["tcp", "tcp"],
  ["tcp", "tcp6"],
  ["udp", "udp"],
  ["udp", "udp6"],
] as const;
/** The kernel's TCP_LISTEN, and TCP_CLOSE, which for UDP says that it is not connected. */
const waitingState = { tcp: "0A", udp: "07" } as const;
const isLittleEndian = endianness() === "LE";

export class SocketScan {
  readonly #processes: ProcessScan;
  #holders = new Map<number, Holder>();

  constructor(processes: ProcessScan) {
    this.#processes = processes;
  }

  sockets(apps: KnownApps): HostSocket[] {
    const texts = new Map<string, string>();
    const rows = tables.flatMap(([protocol, table]) => readTable(protocol, table, texts));
    const holders = this.#holdersOf(rows.map(({ inode }) => inode));
    const pids = new Set([...holders.values()].flatMap(({ pid }) => pid ?? []));
    const owners = this.#processes.owners(pids, apps);
    return rows.map(({ inode, ...row }) => {
      const owner = owners.get(holders.get(inode)?.pid ?? -1);
      return { ...row, ...(owner && { owner }) };
    });
  }

  /** Only what is new, or is no longer where it was, has all descriptors of all processes looked at. */
  #holdersOf(inodes: readonly number[]): ReadonlyMap<number, Holder> {
    const known = new Map<number, Holder>();
    // Of thousands of sockets many are of one process.
    const starts = new Map<number, number | undefined>();
    const isMissing = inodes.some((inode) => {
      const holder = this.#holders.get(inode);
      if (holder === undefined || !holds(holder, inode, starts)) return true;
      known.set(inode, holder);
      return false;
    });
    this.#holders = isMissing ? findHolders(new Set(inodes)) : known;
    return this.#holders;
  }
}

/** @param texts of addresses that were seen already: thousands of sockets have few */
function readTable(protocol: "tcp" | "udp", table: string, texts: Map<string, string>): TableRow[] {
  let text: string;
  try {
    text = readFileSync(`/proc/net/${table}`, "latin1");
  } catch {
    // A kernel without IPv6.
    return [];
  }
  return Array.from(socketsIn(text, waitingState[protocol]))
    .filter(({ remote }) => /^0+:0000$/.test(remote))
    .map(({ address: hex, port, uid, inode }) => {
      const address = texts.get(hex) ?? addressText(hex);
      texts.set(hex, address);
      return { protocol, address, port, uid, inode };
    });
}

/** From the kernel's words of 32 bits, each in the machine's own order. */
function addressText(hex: string): string {
  const bytes = Buffer.from(hex, "hex");
  if (isLittleEndian) bytes.swap32();
  if (bytes.length === 4) return bytes.join(".");
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(":");
  // The runtime's own URL writes addresses the shortest way (RFC 5952).
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}

/** @param starts of processes that were looked at already, by pid */
function holds(
  { pid, startTicks, fd }: Holder,
  inode: number,
  starts: Map<number, number | undefined>,
): boolean {
  if (pid === undefined) return true;
  if (!starts.has(pid)) starts.set(pid, readProcess(pid)?.startTicks);
  if (starts.get(pid) !== startTicks) return false;
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`) === `socket:[${inode}]`;
  } catch {
    return false;
  }
}

/** Where several processes have one, the one with the lowest pid. */
function findHolders(wanted: ReadonlySet<number>): Map<number, Holder> {
  const holders = new Map<number, Holder>();
  for (const pid of listPids().toSorted((a, b) => a - b)) {
    const startTicks = readProcess(pid)?.startTicks;
    if (startTicks === undefined) continue;
    for (const [fd, inode] of socketsOf(pid)) {
      if (wanted.has(inode) && !holders.has(inode)) holders.set(inode, { pid, startTicks, fd });
    }
  }
  for (const inode of wanted)
    if (!holders.has(inode)) holders.set(inode, { pid: undefined, startTicks: 0, fd: "" });
  return holders;
}

function socketsOf(pid: number): [fd: string, inode: number][] {
  const dir = `/proc/${pid}/fd`;
  try {
    return readdirSync(dir).flatMap((fd): [string, number][] => {
      try {
        const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`${dir}/${fd}`))?.[1];
        return inode === undefined ? [] : [[fd, Number(inode)]];
      } catch {
        return [];
      }
    });
  } catch {
    // It ended, or is not ours to look into.
    return [];
  }
}
