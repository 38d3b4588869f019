/**
 * The private socket of a supervisor: newline-delimited JSON, described in supervisor-types.ts.
 *
 * The kernel controls access: the socket has mode 0600 in the owner's directory of mode 0700, so only the owner and
 * root can connect.
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

/**
 * Relative to the run directory, the supervisor's working directory, because the full path may be too long for a
 * socket.
 */
const socketName = "supervisor.sock";
export const protocolVersion = 1;

const maxRequestBytes = 64 * 1024;
const maxConnections = 64;
/** A subscriber with more unread data than this is disconnected. */
const maxUnreadBytes = 1024 * 1024;
const closeMs = 5000;

/**
 * @typedef {object} Controlled what the socket controls
 * @property {() => SupervisorState} state
 * @property {(graceMs: number | undefined) => void} stop
 * @property {() => Promise<void>} freeze
 * @property {() => void} thaw resumes what {@link Controlled.freeze} has frozen, or is freezing
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
  /** Connections that stream data: called when there may be more to send. @type {Map<Socket, () => void>} */
  #followers = new Map();
  /** Connections that watch the terminal. @type {Map<Socket, Watcher>} */
  #watchers = new Map();
  /** The client that froze the app. @type {Socket | undefined} */
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

  /** Binds the socket, replacing a stale one. @throws when another supervisor listens on it */
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

  /** Sends the state to every subscriber. */
  publishState() {
    for (const socket of this.#subscribers) this.#sendState(socket);
  }

  /** Wakes up the log followers. */
  publishLog() {
    for (const advance of this.#followers.values()) advance();
  }

  /** Frees the socket's name at once; resolves when each client has received its data, or after some seconds. */
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
        throw new Error(`protocol ${request.protocol} is not supported`);
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
   * Ties the freeze to the connection: the app resumes if the client is killed.
   * @param {Socket} socket
   */
  async #freeze(socket) {
    if (this.#holder !== undefined) throw new Error("the app is already frozen");
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
   * Takes over the connection: sends one message after another, at the reader's speed, until the client disconnects.
   * @param {Socket} socket
   * @param {number} id of the request
   * @param {() => SupervisorMessage | undefined | Promise<SupervisorMessage | undefined>} next undefined without a message
   */
  async #feed(socket, id, next) {
    if (this.#followers.has(socket)) throw new Error("the connection already streams data");
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
   * Sends the terminal's output, its last screen first, until the app ends or the client disconnects.
   * @param {Socket} socket
   * @param {{ id: number, size?: TerminalSize }} request
   */
  async #attach(socket, { id, size }) {
    const terminal = this.#controlled.terminal();
    if (terminal === undefined) throw new Error("the app has no terminal");
    if (this.#watchers.has(socket)) throw new Error("the connection already watches the terminal");
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
    if (watcher === undefined) throw new Error("the connection does not watch the terminal");
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

/** Whether a supervisor listens on the socket. */
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
