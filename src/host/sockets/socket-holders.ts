/** Finds the processes that hold sockets. The last known holder is checked first, because scanning all descriptors is slow. */
import { closeSync, openSync, readdirSync, readlinkSync } from "node:fs";
import { listPids, readProcess } from "../../sys/process-table.mjs";

/**
 * @param dir a descriptor of the process's `/proc/<pid>/fd`, which still refers to that process if the pid is reused
 * @returns the inode of the socket; `undefined` if the descriptor is not a socket or is closed
 */
type SocketAt = (dir: number, fd: string) => number | undefined;

/** A process, and its socket descriptors by inode. */
interface Holder {
  readonly startTicks: number;
  readonly sockets: ReadonlyMap<number, string>;
}

/** How long a socket counts as having no holder; a socket on its way to another process has none for a moment. */
const nobodyMs = 10_000;

export class SocketHolders {
  readonly #socketAt: SocketAt;
  readonly #monotonicMs: () => number;
  /** By pid. */
  #holders: ReadonlyMap<number, Holder> = new Map();
  #unheld: ReadonlySet<number> = new Set();
  #allSeenAtMs = -Infinity;

  constructor(socketAt: SocketAt = readSocketAt, monotonicMs = (): number => performance.now()) {
    this.#socketAt = socketAt;
    this.#monotonicMs = monotonicMs;
  }

  /** By inode: the lowest pid of the processes that hold it; sockets without a holder are absent. */
  of(inodes: Iterable<number>): Map<number, number> {
    const searched = new Set(inodes);
    const found = this.#stillHeld(searched);
    const isOld = this.#monotonicMs() - this.#allSeenAtMs > nobodyMs;
    const isKnown = (inode: number): boolean => found.has(inode) || (!isOld && this.#unheld.has(inode));
    return searched.values().every(isKnown) ? found : this.#scanAll(searched);
  }

  #stillHeld(searched: ReadonlySet<number>): Map<number, number> {
    const found = new Map<number, number>();
    for (const [pid, { startTicks, sockets }] of this.#holders) {
      withDescriptors(pid, (dir) => {
        for (const [inode, fd] of sockets)
          if (searched.has(inode) && this.#socketAt(dir, fd) === inode) found.set(inode, pid);
      });
      if (readProcess(pid)?.startTicks === startTicks) continue;
      for (const inode of sockets.keys()) found.delete(inode);
    }
    return found;
  }

  #scanAll(searched: ReadonlySet<number>): Map<number, number> {
    const found = new Map<number, number>();
    const holders = new Map<number, Holder>();
    for (const pid of listPids().toSorted((a, b) => a - b)) {
      withDescriptors(pid, (dir) => {
        const sockets = new Map<number, string>();
        for (const fd of readdirSync(`/proc/self/fd/${dir}`)) {
          const inode = this.#socketAt(dir, fd);
          if (inode !== undefined && searched.has(inode) && !found.has(inode)) sockets.set(inode, fd);
        }
        const [first] = sockets;
        if (first === undefined) return;
        const startTicks = readProcess(pid)?.startTicks;
        // The directory can still be read, so the process had this pid all the time.
        if (startTicks === undefined || this.#socketAt(dir, first[1]) === undefined) return;
        holders.set(pid, { startTicks, sockets });
        for (const inode of sockets.keys()) found.set(inode, pid);
      });
    }
    this.#holders = holders;
    this.#unheld = new Set(searched.values().filter((inode) => !found.has(inode)));
    this.#allSeenAtMs = this.#monotonicMs();
    return found;
  }
}

/** Does nothing if the process has ended or is not accessible. */
function withDescriptors(pid: number, use: (dir: number) => void): void {
  let dir: number;
  try {
    dir = openSync(`/proc/${pid}/fd`, "r");
  } catch {
    return;
  }
  try {
    use(dir);
  } catch {
    // The process has ended.
  } finally {
    closeSync(dir);
  }
}

export function readSocketAt(dir: number, fd: string): number | undefined {
  try {
    const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${dir}/${fd}`))?.[1];
    return inode === undefined ? undefined : Number(inode);
  } catch {
    return undefined;
  }
}
