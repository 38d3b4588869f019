/** Finds the owner of a TCP socket of this host in the kernel's tables (proc_net(5)). */
import { readFile } from "node:fs/promises";
import { isIPv4 } from "node:net";
import { endianness } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { listenerTables, socketsIn } from "./listening-sockets.mjs";

/** The client's end of a connection within this host. */
export interface ClientEnd {
  readonly localAddress?: string | undefined;
  readonly localPort?: number | undefined;
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

const [established, listening] = ["01", "0A"];
/** Milliseconds between two reads of the tables. */
const pollMs = 10;

/**
 * Returns the uid of the process that accepted a connection, once it has. Only the accepted socket counts: the
 * listening socket may get another owner, and older kernels show pending connections as root's.
 * @returns undefined if no process of this host has accepted it in time
 */
export async function accepterOf(client: ClientEnd, signal: AbortSignal): Promise<number | undefined> {
  const { localAddress = "", localPort = 0, remoteAddress = "", remotePort = 0 } = client;
  const remotes = tableForms(localAddress).map((address) => `${address}:${hexPort(localPort)}`);
  const locals = tableForms(remoteAddress);
  while (!signal.aborted) {
    for (const table of await readTables())
      for (const { address, port, remote, uid, inode } of socketsIn(table, established)) {
        const isPeer = port === remotePort && locals.includes(address) && remotes.includes(remote);
        if (isPeer && inode !== 0) return uid;
      }
    await sleep(pollMs, undefined, { signal }).catch(() => undefined);
  }
  return undefined;
}

/** The uids of processes that listen on a port of this host, at any address. */
export async function listenerUids(port: number): Promise<Set<number>> {
  const rows = (await readTables()).flatMap((table) => [...socketsIn(table, listening)]);
  return new Set(rows.filter((row) => row.port === port).map(({ uid }) => uid));
}

/** Such as `user alice (uid 1000)`. */
export async function describeUser(uid: number): Promise<string> {
  const lines = await readFile("/etc/passwd", "utf8").catch(() => "");
  const name = new RegExp(`^([^:\\n]+):[^:]*:${uid}:`, "m").exec(lines)?.[1];
  return name === undefined ? `uid ${uid}` : `user ${name} (uid ${uid})`;
}

/** A kernel without IPv6 lacks the second table. */
function readTables(): Promise<string[]> {
  return Promise.all(listenerTables.map((path) => readFile(path, "latin1").catch(() => "")));
}

/** The forms of an address in the tables; IPv4 addresses also in the form of dual-stack sockets. */
function tableForms(address: string): string[] {
  const v4 = address.replace(/^::ffff:/i, "");
  if (isIPv4(v4)) {
    const word = hexWords(Buffer.from(v4.split(".").map(Number)));
    return [word, `${"0".repeat(16)}${hexWords(Buffer.from([0, 0, 0xff, 0xff]))}${word}`];
  }
  return [hexWords(ipv6Bytes(address))];
}

function ipv6Bytes(address: string): Buffer {
  const [head = "", tail = ""] = address.split("::", 2);
  const [before = [], after = []] = [head, tail].map((part) =>
    part.split(":").filter((group) => group !== ""),
  );
  const gap = Array.from({ length: Math.max(0, 8 - before.length - after.length) }, () => "0");
  const bytes = Buffer.alloc(16);
  [...before, ...gap, ...after]
    .slice(0, 8)
    .forEach((group, at) => bytes.writeUInt16BE(Number.parseInt(group, 16), at * 2));
  return bytes;
}

/** The kernel writes 32-bit words in the host's byte order. */
function hexWords(bytes: Buffer): string {
  if (endianness() === "LE") bytes.swap32();
  return bytes.toString("hex").toUpperCase();
}

function hexPort(port: number): string {
  return port.toString(16).toUpperCase().padStart(4, "0");
}
