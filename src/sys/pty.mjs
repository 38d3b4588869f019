/** Pseudo terminals: pty(7), ioctl_tty(2). Node cannot open one or set its size. */
import { closeSync, constants, fchmodSync, fchownSync, openSync, writeSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { ReadStream } from "node:tty";
import { loadKoffi } from "./koffi.mjs";

/** @import { TerminalSize } from "../lib/terminal.ts" */

/** Requests of ioctl(2), the same on all common architectures of Linux. */
const setLock = 0x40045431;
const getNumber = 0x80045430;
const getForeground = 0x540f;
const setWindowSize = 0x5414;

/** Milliseconds between two attempts to write to a terminal whose program does not read. */
const retryMs = 5;
/**
 * Bytes read ahead of the consumer: the kernel returns at most a page at a time, and passing on each page separately
 * would be expensive.
 */
const aheadBytes = 64 * 1024;
const pageBytes = 4096;
/** Size of a read from a full terminal. A shorter read is the last one: more would have to wait for another event. */
const fullReadBytes = pageBytes - 1;
/** A program that prints this much at once will print more. */
const floodBytes = 1024;
/** Milliseconds to collect more output of such a program. */
const gatherMs = 2;

/**
 * @typedef {object} Calls
 * @property {(fd: number, request: number, argument: Int32Array) => void} ofInt
 * @property {(fd: number, request: number, argument: Uint16Array) => void} ofWindow
 * @property {(fd: number, room: Buffer, bytes: number) => number} read
 */

/**
 * Loads the native calls, which costs about 2 ms and 8 MB.
 * @returns {(owner: { uid: number, gid: number }, size: TerminalSize) => Pty} opens a terminal whose far end belongs to
 *   the user
 * @throws Error if terminals are not supported, or all are used
 */
export function loadPtys() {
  const koffi = loadKoffi();
  const libc = koffi.load(null);
  /** @param {string} declaration */
  const ioctl = (declaration) => {
    const call = libc.func(`int ioctl(int fd, unsigned long request, ${declaration} *argument)`);
    /** @type {(fd: number, request: number, argument: Int32Array | Uint16Array) => void} */
    return (fd, request, argument) => {
      if (call(fd, request, argument) !== 0) throw new Error(`ioctl ${request}: errno ${koffi.errno()}`);
    };
  };
  // `readSync` creates an error for each read from an empty terminal, which slows down a flood of output.
  /** @type {Calls["read"]} */
  const read = libc.func("intptr_t read(int fd, void *room, size_t bytes)");
  const calls = { ofInt: ioctl("_Inout_ int"), ofWindow: ioctl("_In_ uint16_t"), read };
  return (owner, size) => new Pty(calls, owner, size);
}

/**
 * Bytes that were read but not consumed. They are read into their final place; only a read changes the position of the
 * next bytes.
 */
class Ahead {
  #buffer = Buffer.allocUnsafeSlow(aheadBytes);
  #from = 0;
  #to = 0;
  /** The unread rest of a full buffer. @type {Buffer | undefined} */
  #full;
  #isReady = false;
  #isGathering = false;
  #isOver = false;
  #wake = () => {};
  #readMore;

  /** @param {(room: Buffer) => number} readMore reads into `room` without waiting; returns 0 or less without data */
  constructor(readMore) {
    this.#readMore = readMore;
  }

  get room() {
    return this.#buffer.subarray(this.#to, this.#to + fullReadBytes);
  }

  /**
   * @param {number} bytes number of bytes that were read
   * @returns {boolean} whether more may be read before these are consumed
   */
  took(bytes) {
    this.#to += bytes;
    // An event per read would cost more than the reads.
    for (let read = bytes; read === fullReadBytes && aheadBytes - this.#to >= pageBytes;) {
      read = this.#readMore(this.room);
      this.#to += Math.max(0, read);
    }
    if (aheadBytes - this.#to < pageBytes) {
      this.#full = this.#buffer.subarray(this.#from, this.#to);
      this.#buffer = Buffer.allocUnsafeSlow(aheadBytes);
      this.#from = this.#to = 0;
      this.#ready();
      return false;
    }
    if (bytes < floodBytes) this.#ready();
    else if (!this.#isGathering) {
      this.#isGathering = true;
      setTimeout(() => {
        this.#isGathering = false;
        this.#ready();
      }, gatherMs);
    }
    return true;
  }

  end() {
    this.#isOver = true;
    this.#wake();
  }

  /** @returns {Promise<Buffer | undefined>} undefined at the end */
  async take() {
    for (;;) {
      const read = this.#next();
      if (read.length > 0 || this.#isOver) return read.length > 0 ? read : undefined;
      await new Promise((resolve) => (this.#wake = () => resolve(undefined)));
    }
  }

  #next() {
    const full = this.#full;
    this.#full = undefined;
    if (full !== undefined) return full;
    const from = this.#from;
    if (this.#isReady || this.#isOver) this.#from = this.#to;
    this.#isReady = false;
    return this.#buffer.subarray(from, this.#from);
  }

  #ready() {
    this.#isReady = true;
    this.#wake();
  }
}

export class Pty {
  /** Path of the far end. A session's leader opens it to make it the controlling terminal. @type {string} */
  path;
  /** Passed to the child process. @type {number} */
  farFd;
  #calls;
  /** @type {number} */
  #fd;
  #stream;
  #readAhead = new Ahead((room) => this.#calls.read(this.#fd, room, room.length));
  #isChildEndOpen = true;
  #isClosed = false;

  /**
   * @param {Calls} calls
   * @param {{ uid: number, gid: number }} owner
   * @param {TerminalSize} size
   */
  constructor(calls, { uid, gid }, size) {
    this.#calls = calls;
    this.#fd = openSync("/dev/ptmx", constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK);
    try {
      const number = new Int32Array(1);
      calls.ofInt(this.#fd, setLock, new Int32Array(1));
      calls.ofInt(this.#fd, getNumber, number);
      this.path = `/dev/pts/${number[0] ?? 0}`;
      this.resize(size);
      this.farFd = openSync(this.path, constants.O_RDWR | constants.O_NOCTTY);
    } catch (error) {
      closeSync(this.#fd);
      throw error;
    }
    // The same mode as grantpt(3), but without the tty group, so that nobody else can write to the terminal.
    fchownSync(this.farFd, uid, gid);
    fchmodSync(this.farFd, 0o600);
    this.#stream = new ReadStream(this.#fd, {
      onread: { buffer: () => this.#readAhead.room, callback: (bytes) => this.#readAhead.took(bytes) },
    });
    // The reader gets errors; without a reader they are ignored.
    this.#stream.on("error", () => undefined);
    // The descriptor number may be reused from then on.
    this.#stream.once("close", () => (this.#isClosed = true));
  }

  /** Call this when the program has exited: then only output that was already printed still arrives. */
  closeFar() {
    if (!this.#isChildEndOpen) return;
    this.#isChildEndOpen = false;
    closeSync(this.farFd);
  }

  /**
   * Yields the output until the last process closes the far end.
   * @returns {AsyncGenerator<Buffer, void>}
   */
  async *read() {
    const [stream, ahead] = [this.#stream, this.#readAhead];
    /** @type {Error | undefined} */
    let failure;
    if (this.#isClosed) ahead.end();
    stream.once("error", (error) => (failure = error));
    stream.once("end", () => ahead.end());
    stream.once("close", () => ahead.end());
    stream.resume();
    for (;;) {
      const read = await ahead.take();
      if (read === undefined) break;
      stream.resume();
      yield read;
    }
    if (
      failure !== undefined &&
      !this.#isClosed &&
      /** @type {NodeJS.ErrnoException} */ (failure).code !== "EIO"
    )
      throw failure;
  }

  /**
   * Writes input. Waits while the program does not read, until `signal` aborts or the terminal is closed.
   * @param {Uint8Array} bytes
   * @param {AbortSignal} [signal]
   */
  async write(bytes, signal) {
    let left = bytes;
    while (left.length > 0 && !this.#isClosed && signal?.aborted !== true) {
      try {
        left = left.subarray(writeSync(this.#fd, left));
      } catch (error) {
        const { code } = /** @type {NodeJS.ErrnoException} */ (error);
        // The far end is closed.
        if (code === "EIO") return;
        if (code !== "EAGAIN") throw error;
        await wait(retryMs);
      }
    }
  }

  /** @param {TerminalSize} size */
  resize({ columns, rows }) {
    if (!this.#isClosed) this.#calls.ofWindow(this.#fd, setWindowSize, Uint16Array.of(rows, columns, 0, 0));
  }

  /** Makes the foreground program repaint its screen, as after a change of the window. */
  repaint() {
    if (this.#isClosed) return;
    try {
      const group = new Int32Array(1);
      this.#calls.ofInt(this.#fd, getForeground, group);
      if ((group[0] ?? 0) > 1) process.kill(-(group[0] ?? 0), "SIGWINCH");
    } catch {
      // No foreground program.
    }
  }

  /** Closes the terminal, which sends SIGHUP. */
  [Symbol.dispose]() {
    this.#isClosed = true;
    this.closeFar();
    this.#stream.destroy();
  }
}
