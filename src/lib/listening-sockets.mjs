/** Who listens on a TCP port, from the kernel's tables (proc_net(5)); also for programs that svc starts on their own. */

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
const LISTEN = "0A";

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
    for (const line of table.split("\n")) {
      // Of thousands of connections only few listen.
      if (!line.includes(` ${LISTEN} `)) continue;
      const [, local = "", , state, , , , uid, , inode] = line.trim().split(/\s+/, 10);
      if (state !== LISTEN) continue;
      const [address = "", hexPort = ""] = local.split(":");
      const rank = reaching.findIndex((pattern) => pattern.test(address));
      if (rank === -1) continue;
      const port = Number.parseInt(hexPort, 16);
      const socket = { port, uid: Number(uid), inode: Number(inode) };
      const known = best.get(port);
      if (known === undefined || rank < known.rank) best.set(port, { rank, sockets: [socket] });
      else if (rank === known.rank) known.sockets.push(socket);
    }
  }
  return new Map([...best].map(([port, { sockets }]) => [port, sockets]));
}
