/**
 * Checks that a port's listener belongs to the app: another process's response says nothing about the app's health.
 */
import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { addressText, listenerTables, parseListeners } from "../../sys/listening-sockets.mjs";
import { readProcess } from "../../sys/process-table.mjs";
import { findMembers } from "./run-members.mjs";

/** @import { ListeningSocket } from "../../sys/listening-sockets.mjs" */
/** @import { Run } from "./run-members.mjs" */

/**
 * @typedef {object} Held A descriptor of one of the app's processes
 * @property {number} pid
 * @property {number} startTicks
 * @property {string} path
 * @property {string} target
 */

export class OwnListener {
  #run;
  /**
   * By port, the descriptor found last. As long as the app has it open, no other process can listen there. @type
   * {Map<number, Held>}
   */
  #listeners = new Map();

  /** @param {Run} run */
  constructor(run) {
    this.#run = run;
  }

  /**
   * @param {number} port
   * @returns {string | undefined} why the listener is not the app; `undefined` if it is, or if a process of the app
   *   cannot be inspected
   */
  explainPortConflict(port) {
    const listener = this.#listeners.get(port);
    if (listener !== undefined && isStill(listener)) return undefined;
    this.#listeners.delete(port);
    const sockets = socketsAt(port);
    if (sockets === undefined) return `no process of the app listens on port ${port}`;
    // Usually the main process listens. Finding all members means reading all of /proc.
    const [other] = this.#otherListeners(sockets, [...this.#run.sessions]);
    if (other === undefined) return undefined;
    const [stranger] = this.#otherListeners(
      sockets,
      findMembers(this.#run).map(({ pid }) => pid),
    );
    return stranger && `port ${port} is in use by ${holderOf(stranger)}`;
  }

  /** TCP ports at which the app listens and that a connection to 127.0.0.1 reaches, in ascending order. */
  openPorts() {
    const held = new Set(
      findMembers(this.#run).flatMap(({ pid }) => (readLinks(pid) ?? []).map(({ target }) => target)),
    );
    const sockets = [...parseListeners(listenerTables.map(readTable)).values()].flat();
    const own = sockets.filter(({ inode }) => held.has(`socket:[${inode}]`));
    return [...new Set(own.map(({ port }) => port))].toSorted((one, other) => one - other);
  }

  /**
   * The address at which the app's user listens, for a port that does not respond at 127.0.0.1.
   * @param {number} port
   * @returns {string | undefined}
   */
  otherAddress(port) {
    const [socket] = socketsAt(port) ?? [];
    if (socket === undefined || socket.uid !== this.#run.uid) return undefined;
    const address = addressText(socket.address);
    if (address === "::") return "::1";
    return address === "127.0.0.1" || address === "0.0.0.0" ? undefined : address;
  }

  /**
   * @param {ListeningSocket[]} sockets
   * @param {number[]} pids of the app
   */
  #otherListeners(sockets, pids) {
    /** @type {Map<string, Held>} */
    const found = new Map();
    let isBlind = false;
    for (const pid of pids) {
      const startTicks = readProcess(pid)?.startTicks;
      const links = startTicks === undefined ? [] : readLinks(pid);
      if (links === undefined) isBlind = true;
      for (const { path, target } of links ?? []) {
        if (startTicks !== undefined) found.set(target, { pid, startTicks, path, target });
      }
    }
    return sockets.filter(({ port, uid, inode }) => {
      const listener = found.get(`socket:[${inode}]`);
      if (listener !== undefined) this.#listeners.set(port, listener);
      return listener === undefined && !(isBlind && uid === this.#run.uid);
    });
  }
}

/** @param {number} port */
function socketsAt(port) {
  return parseListeners(listenerTables.map(readTable), { elsewhere: true }).get(port);
}

/** @param {string} path */
function readTable(path) {
  try {
    return readFileSync(path, "latin1");
  } catch {
    // This kernel has no IPv6.
    return "";
  }
}

/** @param {Held} held */
function isStill({ pid, startTicks, path, target }) {
  try {
    return readlinkSync(path) === target && readProcess(pid)?.startTicks === startTicks;
  } catch {
    return false;
  }
}

/**
 * The descriptors of a process.
 * @param {number} pid
 * @returns {{ path: string, target: string }[] | undefined} `undefined` without permission to read them
 */
function readLinks(pid) {
  const directory = `/proc/${pid}/fd`;
  try {
    return readdirSync(directory).flatMap((name) => {
      const path = `${directory}/${name}`;
      try {
        return [{ path, target: readlinkSync(path) }];
      } catch {
        return [];
      }
    });
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === "EACCES" ? undefined : [];
  }
}

/** @param {ListeningSocket} socket */
function holderOf({ uid, inode }) {
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    if (readLinks(pid)?.some(({ target }) => target === `socket:[${inode}]`) !== true) continue;
    return `process ${pid} (${basename(readlinkSync(`/proc/${pid}/exe`))})`;
  }
  return uid === 0 ? "a process of root" : `a process of uid ${uid}`;
}
