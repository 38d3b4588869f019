/**
 * Finds the sockets that listen on a port, from the kernel's tables (proc_net(5)). Also used by programs that svc
 * starts as separate processes.
 */
import { endianness } from "node:os";

/**
 * @typedef {object} SocketRow
 * @property {string} address as the table writes it
 * @property {number} port
 * @property {string} remote address and port, as the table writes them
 * @property {number} uid the owner
 * @property {number} inode as `socket:[inode]` in `/proc/<pid>/fd` of its processes
 */

/**
 * @typedef {object} ListeningSocket
 * @property {string} address as the table writes it; see {@link addressText}
 * @property {number} port
 * @property {number} uid the owner
 * @property {number} inode as `socket:[inode]` in `/proc/<pid>/fd` of its processes
 */

/** The tables of the network namespace of this process. */
export const listenerTables = ["/proc/net/tcp", "/proc/net/tcp6"];

/**
 * Local addresses as the tables write them, the most specific first: a connection to 127.0.0.1 reaches the first one
 * that is bound.
 */
const reaching = [/^0100007F$/, /^0000000000000000FFFF00000100007F$/, /^0{8}$/, /^0{32}$/];
/** First bytes of an IPv4 address in a table of IPv6. */
const mappedPrefix = "00000000000000000000ffff";
const listenState = "0A";
/** State of a bound UDP socket without a peer. */
const unconnectedState = "07";

/**
 * Yields the sockets of a table in the given state.
 * @param {string} table its text
 * @param {string} state as the table writes it
 * @returns {Generator<SocketRow, void>}
 */
export function* socketsIn(table, state) {
  for (const line of table.split("\n")) {
    // Only few of thousands of connections are in this state.
    if (!line.includes(` ${state} `)) continue;
    const [, local = "", remote = "", rowState, , , , uid, , inode] = line.trim().split(/\s+/, 10);
    if (rowState !== state) continue;
    const [address = "", port = ""] = local.split(":");
    yield { address, port: Number.parseInt(port, 16), remote, uid: Number(uid), inode: Number(inode) };
  }
}

/**
 * Returns the ports that are bound at any address, and so cannot be bound at all addresses of the host.
 * @param {string} table the text of a table of `/proc/net`
 * @param {"tcp" | "udp"} protocol protocol of the table
 * @returns {Set<number>}
 */
export function boundPorts(table, protocol) {
  const ports = [...socketsIn(table, protocol === "tcp" ? listenState : unconnectedState)];
  return new Set(ports.map(({ port }) => port));
}

/**
 * Returns the sockets that a connection to 127.0.0.1 can reach, by port. A port has several only if processes share it
 * (SO_REUSEPORT).
 * @param {readonly string[]} tables the texts of {@link listenerTables}
 * @param {{ elsewhere?: boolean }} [also] `elsewhere`: for other ports also the sockets of any other address
 * @returns {Map<number, ListeningSocket[]>}
 */
export function parseListeners(tables, { elsewhere = false } = {}) {
  /** @type {Map<number, { rank: number, sockets: ListeningSocket[] }>} */
  const best = new Map();
  for (const table of tables) {
    for (const { address, port, uid, inode } of socketsIn(table, listenState)) {
      const found = reaching.findIndex((pattern) => pattern.test(address));
      if (found === -1 && !elsewhere) continue;
      const rank = found === -1 ? reaching.length : found;
      const socket = { address, port, uid, inode };
      const known = best.get(port);
      if (known === undefined || rank < known.rank) best.set(port, { rank, sockets: [socket] });
      else if (rank === known.rank) known.sockets.push(socket);
    }
  }
  return new Map([...best].map(([port, { sockets }]) => [port, sockets]));
}

/**
 * The address of a socket as people write it, such as `192.168.1.5` or `::1`.
 * @param {string} address 32-bit words of the kernel, each in the byte order of the machine
 * @returns {string}
 */
export function addressText(address) {
  const bytes = Buffer.from(address, "hex");
  if (endianness() === "LE") bytes.swap32();
  const isMapped = bytes.length === 16 && bytes.subarray(0, 12).toString("hex") === mappedPrefix;
  if (bytes.length === 4 || isMapped) return bytes.subarray(-4).join(".");
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(at * 2).toString(16)).join(":");
  // URL writes addresses in the shortest form (RFC 5952).
  return new URL(`http://[${groups}]`).hostname.slice(1, -1);
}
