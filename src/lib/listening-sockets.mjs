/** Who listens on a port, from the kernel's tables (proc_net(5)); also for programs that svc starts on their own. */

/**
 * @typedef {object} SocketRow
 * @property {string} address as the table writes it
 * @property {number} port
 * @property {string} remote address and port, as the table writes them
 * @property {number} uid whose it is
 * @property {number} inode `socket:[inode]` in `/proc/<pid>/fd` of the processes that hold it
 */

/**
 * @typedef {object} ListeningSocket
 * @property {number} port
 * @property {number} uid whose it is
 * @property {number} inode `socket:[inode]` in `/proc/<pid>/fd` of the processes that hold it
 */

/** The tables of the network that this process sees. */
export const listenerTables = ["/proc/net/tcp", "/proc/net/tcp6"];

/** Local addresses as the tables write them, the most specific first: what asks at 127.0.0.1 gets to the first that is bound. */
const reaching = [/^0100007F$/, /^0000000000000000FFFF00000100007F$/, /^0{8}$/, /^0{32}$/];
const listenState = "0A";

/**
 * The sockets of a table that are in one state.
 * @param {string} table its text
 * @param {string} state as the table writes it
 * @returns {Generator<SocketRow, void>}
 */
export function* socketsIn(table, state) {
  for (const line of table.split("\n")) {
    // Of thousands of connections only few listen.
    if (!line.includes(` ${state} `)) continue;
    const [, local = "", remote = "", rowState, , , , uid, , inode] = line.trim().split(/\s+/, 10);
    if (rowState !== state) continue;
    const [address = "", port = ""] = local.split(":");
    yield { address, port: Number.parseInt(port, 16), remote, uid: Number(uid), inode: Number(inode) };
  }
}

/**
 * The sockets of the tables that a connection to 127.0.0.1 gets to, by port. There are several for one port only where
 * processes share it (SO_REUSEPORT).
 * @param {readonly string[]} tables the texts of {@link listenerTables}
 * @returns {Map<number, ListeningSocket[]>}
 */
export function parseListeners(tables) {
  /** @type {Map<number, { rank: number, sockets: ListeningSocket[] }>} */
  const best = new Map();
  for (const table of tables) {
    for (const { address, port, uid, inode } of socketsIn(table, listenState)) {
      const rank = reaching.findIndex((pattern) => pattern.test(address));
      if (rank === -1) continue;
      const socket = { port, uid, inode };
      const known = best.get(port);
      if (known === undefined || rank < known.rank) best.set(port, { rank, sockets: [socket] });
      else if (rank === known.rank) known.sockets.push(socket);
    }
  }
  return new Map([...best].map(([port, { sockets }]) => [port, sockets]));
}
