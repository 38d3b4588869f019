/**
 * The private socket of a supervisor: newline-delimited JSON, described in supervisor-types.ts.
 *
 * Who may connect is the kernel's decision: the socket is 0600 in a 0700 directory of the owner, so only the owner
 * and root reach it.
 */
import { once } from "node:events";
import { chmodSync, unlinkSync } from "node:fs";
import { connect, createServer } from "node:net";
import { LogReader, tailPosition } from "./log-reader.mjs";

/** @import { Server, Socket } from "node:net" */
/** @import { AppTerminal, Watcher } from "./app-terminal.mjs" */
/** @import { TerminalSize } from "../../lib/terminal.ts" */
/** @import { LogWriter } from "./log-writer.mjs" */
/** @import { HelloMessage, SupervisorMessage, SupervisorRequest, SupervisorState } from "./supervisor-types.ts" */

/** Relative to the run directory, the working directory of the supervisor: the whole path may be too long for a socket. */
const socketName = "supervisor.sock";
export const protocolVersion = 1;

const maxRequestBytes = 64 * 1024;
const maxConnections = 64;
/** A subscriber that lets more than this pile up is cut off. */
const maxUnreadBytes = 1024 * 1024;
const closeMs = 5000;

/**
 * @typedef {object} Controlled what the socket gives access to
 * @property {() => SupervisorState} state
 * @property {(graceMs: number | undefined) => void} stop
 * @property {() => Promise<void>} freeze
 * @property {() => void} thaw what {@link Controlled.freeze} has frozen, or is about to
 * @property {LogWriter} log
 * @property {() => AppTerminal | undefined} terminal
 */

export class ControlServer {
  #hello;
  #controlled;
  /** @type {Server} */
  #server;
  /** @type {Set<Socket>} */
  #connections = new Set();
  /** @type {Set<Socket>} */
  #subscribers = new Set();
  /** Those that are fed: called when there may be more for them. @type {Map<Socket, () => void>} */
  #followers = new Map();
  /** Those that watch the terminal. @type {Map<Socket, Watcher>} */
  #watchers = new Map();
  /** For whom the app is frozen. @type {Socket | undefined} */
  #holder;
  #closing = false;

  /**
   * @param {Omit<HelloMessage, "type" | "protocol">} identity
   * @param {Controlled} controlled
   */
  constructor(identity, controlled) {
    this.#hello = {
      type: /** @type {const} */ ("hello"),
      protocol: { min: 1, max: protocolVersion },
      ...identity,
    };
    this.#controlled = controlled;
    this.#server = createServer((socket) => this.#accept(socket));
    this.#server.maxConnections = maxConnections;
  }

  /** Takes the socket's name, a stale one's too. @throws when another supervisor answers on it */
  async listen() {
    try {
      await this.#bind();
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== "EADDRINUSE") throw error;
      if (await answers()) throw new Error("another supervisor runs in this directory", { cause: error });
      unlinkSync(socketName);
      await this.#bind();
    }
    chmodSync(socketName, 0o600);
  }

  /** Tells every subscriber the state. */
  publishState() {
    for (const socket of this.#subscribers) this.#sendState(socket);
  }

  /** Lets followers read on. */
  publishLog() {
    for (const advance of this.#followers.values()) advance();
  }

  /** Frees the socket's name at once, and ends once each client has taken what is meant for it, or after some seconds. */
  async close() {
    this.#server.close();
    this.#closing = true;
    for (const socket of this.#connections) if (!this.#followers.has(socket)) socket.end();
    this.publishLog();
    const deadline = setTimeout(() => {
      for (const socket of this.#connections) socket.destroy();
    }, closeMs);
    await Promise.all(
      [...this.#connections].map((socket) => new Promise((resolve) => socket.once("close", resolve))),
    );
    clearTimeout(deadline);
  }

  async #bind() {
    await once(this.#server.listen(socketName), "listening");
  }

  /** @param {Socket} socket */
  #accept(socket) {
    this.#connections.add(socket);
    socket.on("error", () => undefined);
    socket.once("close", () => {
      this.#connections.delete(socket);
      this.#subscribers.delete(socket);
    });
    socket.setEncoding("utf8");
    let unread = "";
    socket.on("data", (/** @type {string} */ text) => {
      const lines = (unread + text).split("\n");
      unread = lines.pop() ?? "";
      for (const line of lines) void this.#answer(socket, line);
      if (unread.length > maxRequestBytes) socket.destroy();
    });
    send(socket, this.#hello);
  }

  /**
   * @param {Socket} socket
   * @param {string} line
   */
  async #answer(socket, line) {
    let id = 0;
    try {
      /** @type {unknown} */
      const parsed = JSON.parse(line);
      const request = /** @type {SupervisorRequest} */ (parsed);
      id = request.id;
      if (request.protocol !== protocolVersion)
        throw new Error(`protocol ${request.protocol} is not spoken here`);
      await this.#perform(socket, request);
    } catch (error) {
      send(socket, {
        type: "reply",
        id,
        ok: false,
        error: error instanceof Error ? error.message : String(error),
      });
    }
  }

  /**
   * @param {Socket} socket
   * @param {SupervisorRequest} request
   */
  async #perform(socket, request) {
    const done = /** @type {const} */ ({ type: "reply", id: request.id, ok: true });
    switch (request.cmd) {
      case "stop":
        this.#controlled.stop(request.graceMs);
        send(socket, done);
        break;
      case "freeze":
        await this.#freeze(socket);
        send(socket, done);
        break;
      case "subscribe":
        send(socket, done);
        this.#subscribers.add(socket);
        this.#sendState(socket);
        break;
      case "follow":
        await this.#follow(socket, request);
        break;
      case "attach":
        await this.#attach(socket, request);
        break;
      case "input":
        await this.#type(socket, request.data);
        send(socket, done);
        break;
      case "resize":
        this.#resize(socket, request.size);
        send(socket, done);
        break;
      default:
        throw new Error("unknown command");
    }
  }

  /**
   * Whoever asks may be killed at any time: what is frozen for them goes on with the end of their connection.
   * @param {Socket} socket
   */
  async #freeze(socket) {
    if (this.#holder !== undefined) throw new Error("the app is frozen already");
    this.#holder = socket;
    socket.once("close", () => {
      this.#holder = undefined;
      this.#controlled.thaw();
    });
    await this.#controlled.freeze();
  }

  /** @param {Socket} socket */
  #sendState(socket) {
    if (socket.writableLength > maxUnreadBytes) socket.destroy();
    else send(socket, { type: "state", state: this.#controlled.state() });
  }

  /**
   * Takes the connection over: sends one message after the other, at the speed of the reader, until it goes away.
   * @param {Socket} socket
   * @param {number} id of the request
   * @param {() => SupervisorMessage | undefined | Promise<SupervisorMessage | undefined>} next undefined while there is none
   */
  async #feed(socket, id, next) {
    if (this.#followers.has(socket)) throw new Error("the connection is taken over already");
    send(socket, { type: "reply", id, ok: true });
    let advance = Promise.withResolvers().resolve;
    const wake = () => advance(undefined);
    this.#followers.set(socket, wake);
    socket.on("drain", wake);
    socket.once("close", wake);
    try {
      while (socket.writable) {
        const news = Promise.withResolvers();
        advance = news.resolve;
        const isFull = socket.writableNeedDrain;
        const message = isFull ? undefined : await next();
        if (message !== undefined) send(socket, message);
        if (message?.type === "ended" || (message === undefined && this.#closing && !isFull)) break;
        if (message === undefined) await news.promise;
      }
    } finally {
      this.#followers.delete(socket);
      socket.end();
    }
  }

  /**
   * Sends the log from a position on.
   * @param {Socket} socket
   * @param {{ id: number, from?: number, tail?: number }} request
   */
  async #follow(socket, { id, from, tail }) {
    const { log } = this.#controlled;
    const end = log.position;
    const position =
      from === undefined ? await tailPosition(log.directory, tail ?? 0, end) : Math.min(from, end);
    const reader = new LogReader(log.directory, position);
    try {
      await this.#feed(socket, id, async () => {
        const { from: begin = 0, to = 0, text } = (await reader.next(log.position)) ?? {};
        if (text === undefined) return undefined;
        return text === null ? { type: "gap", from: begin, to } : { type: "log", from: begin, to, text };
      });
    } finally {
      await reader.close();
    }
  }

  /**
   * Shows the terminal, its last screen first, until the app ends or the watcher goes away.
   * @param {Socket} socket
   * @param {{ id: number, size?: TerminalSize }} request
   */
  async #attach(socket, { id, size }) {
    const terminal = this.#controlled.terminal();
    if (terminal === undefined) throw new Error("the app has no terminal");
    if (this.#watchers.has(socket)) throw new Error("it watches already");
    const watcher = terminal.watch(size, () => this.#followers.get(socket)?.());
    this.#watchers.set(socket, watcher);
    try {
      await this.#feed(socket, id, () => {
        const part = watcher.next();
        if (part !== undefined && "data" in part)
          return { type: "output", data: part.data.toString("base64") };
        if (part !== undefined) return { type: "missed", bytes: part.missedBytes };
        return watcher.exitCode === undefined ? undefined : { type: "ended", code: watcher.exitCode };
      });
    } finally {
      this.#watchers.delete(socket);
      terminal.leave(watcher);
    }
  }

  /**
   * @param {Socket} socket
   * @param {string} data in base64
   */
  async #type(socket, data) {
    const watcher = this.#watchers.get(socket);
    if (watcher === undefined) throw new Error("it does not watch");
    await this.#controlled.terminal()?.type(watcher, Buffer.from(data, "base64"));
  }

  /**
   * @param {Socket} socket
   * @param {TerminalSize} size
   */
  #resize(socket, size) {
    const watcher = this.#watchers.get(socket);
    if (watcher) this.#controlled.terminal()?.resize(watcher, size);
  }
}

/**
 * @param {Socket} socket
 * @param {SupervisorMessage} message
 */
function send(socket, message) {
  if (socket.writable) socket.write(`${JSON.stringify(message)}\n`);
}

/** Whether anybody listens on the socket. */
async function answers() {
  const socket = connect(socketName);
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
