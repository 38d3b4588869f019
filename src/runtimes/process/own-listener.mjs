/** Whether it is the app itself that listens on a port: what another process answers says nothing about the app (threat 62). */
import { readFileSync, readdirSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { listenerTables, parseListeners } from "../../lib/listening-sockets.mjs";
import { readProcess } from "../../lib/process-table.mjs";
import { findMembers } from "./run-members.mjs";

/** @import { ListeningSocket } from "../../lib/listening-sockets.mjs" */
/** @import { Run } from "./run-members.mjs" */

/**
 * @typedef {object} Held A descriptor of a process of the app
 * @property {number} pid
 * @property {number} startTicks
 * @property {string} path
 * @property {string} target
 */

export class OwnListener {
  #run;
  /** By port: what was found last. As long as the app holds it, nobody else can listen there. @type {Map<number, Held>} */
  #held = new Map();

  /** @param {Run} run */
  constructor(run) {
    this.#run = run;
  }

  /**
   * @param {number} port
   * @returns {string | undefined} why it is not the app; `undefined` when it is, or a process of the app cannot be looked into
   */
  whyForeign(port) {
    const held = this.#held.get(port);
    if (held !== undefined && isStill(held)) return undefined;
    this.#held.delete(port);
    const sockets = parseListeners(listenerTables.map(readTable)).get(port);
    if (sockets === undefined) return `no process of it listens on port ${port}`;
    // First the main process alone, which mostly is the one: finding all members means reading all of /proc.
    const [foreign] = this.#foreign(sockets, [...this.#run.sessions]);
    if (foreign === undefined) return undefined;
    const [stranger] = this.#foreign(
      sockets,
      findMembers(this.#run).map(({ pid }) => pid),
    );
    return stranger && `port ${port} is taken by ${holderOf(stranger)}`;
  }

  /**
   * @param {ListeningSocket[]} sockets
   * @param {number[]} pids of the app
   */
  #foreign(sockets, pids) {
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
      const held = found.get(`socket:[${inode}]`);
      if (held !== undefined) this.#held.set(port, held);
      return held === undefined && !(isBlind && uid === this.#run.uid);
    });
  }
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
 * @returns {{ path: string, target: string }[] | undefined} `undefined` when they may not be seen
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
