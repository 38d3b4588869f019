/** Pseudo terminals: pty(7), ioctl_tty(2). */
import { closeSync, constants, fchmodSync, fchownSync, openSync, writeSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { ReadStream } from "node:tty";
import { loadKoffi } from "./koffi.mjs";

/** @import { TerminalSize } from "./terminal.ts" */

/** Requests of ioctl(2), the same on all of Linux's common architectures. */
const setLock = 0x40045431;
const getNumber = 0x80045430;
const getForeground = 0x540f;
const setWindowSize = 0x5414;

/** Between two attempts to write to a terminal whose program does not read. */
const retryMs = 5;
/** Read ahead of who reads: the kernel gives no more than a page at a time, each of which would cost a way through everything. */
const aheadBytes = 64 * 1024;
const pageBytes = 4096;
/** What a read of a full terminal brings. One that was asked for more looks like the last: the next would wait for another event. */
const fullReadBytes = pageBytes - 1;
/** Whoever prints so much at once goes on. */
const floodBytes = 1024;
/** For what follows a flood. */
const gatherMs = 2;

/**
 * @typedef {object} Calls
 * @property {(fd: number, request: number, argument: Int32Array) => void} ofInt
 * @property {(fd: number, request: number, argument: Uint16Array) => void} ofWindow
 * @property {(fd: number, room: Buffer, bytes: number) => number} read
 */

/**
 * Loads the native calls: about 2 ms and 8 MB.
 * @returns {(owner: { uid: number, gid: number }, size: TerminalSize) => Pty} opens a terminal whose far end is the user's
 * @throws Error where there are no terminals, or none is left
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
  /** @type {Calls["read"]} */
  const read = libc.func("intptr_t read(int fd, void *room, size_t bytes)");
  const calls = { ofInt: ioctl("_Inout_ int"), ofWindow: ioctl("_In_ uint16_t"), read };
  return (owner, size) => new Pty(calls, owner, size);
}

/** What has been read and not taken. It is read to where it stays: where the next bytes go changes with a read alone. */
class Ahead {
  #buffer = Buffer.allocUnsafeSlow(aheadBytes);
  #from = 0;
  #to = 0;
  /** The rest of a buffer without room. @type {Buffer | undefined} */
  #full;
  #isReady = false;
  #isGathering = false;
  #isOver = false;
  #wake = () => {};
  #readMore;

  /** @param {(room: Buffer) => number} readMore into `room`, without waiting; 0 or less when there is nothing now */
  constructor(readMore) {
    this.#readMore = readMore;
  }

  get room() {
    return this.#buffer.subarray(this.#to, this.#to + fullReadBytes);
  }

  /**
   * @param {number} bytes How many have been put there.
   * @returns {boolean} Whether more may come before these are taken.
   */
  took(bytes) {
    this.#to += bytes;
    // Each by way of an event costs more than the reading.
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
  /** Of the far end, which a session's leader opens to have it as its terminal. @type {string} */
  path;
  /** To be handed down. @type {number} */
  farFd;
  #calls;
  /** @type {number} */
  #fd;
  #stream;
  #ahead = new Ahead((room) => this.#calls.read(this.#fd, room, room.length));
  #isFarOpen = true;
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
    // As grantpt(3) leaves it, but for the group of all terminals: nobody else writes to it.
    fchownSync(this.farFd, uid, gid);
    fchmodSync(this.farFd, 0o600);
    this.#stream = new ReadStream(this.#fd, {
      onread: { buffer: () => this.#ahead.room, callback: (bytes) => this.#ahead.took(bytes) },
    });
    // Its reader hears of them; before there is one nobody does.
    this.#stream.on("error", () => undefined);
    // The number is somebody else's from then on.
    this.#stream.once("close", () => (this.#isClosed = true));
  }

  /** To be called when the program has ended: what others have printed is then all that comes. */
  closeFar() {
    if (!this.#isFarOpen) return;
    this.#isFarOpen = false;
    closeSync(this.farFd);
  }

  /**
   * What is printed there, until the last who has the far end open closes it.
   * @returns {AsyncGenerator<Buffer, void>}
   */
  async *read() {
    const [stream, ahead] = [this.#stream, this.#ahead];
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
   * Types bytes; waits while the program does not read, until `signal` aborts or the terminal is closed.
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
        // Nobody is there any more.
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

  /** Has the program that is in front paint its screen again, as after a change of the window. */
  repaint() {
    if (this.#isClosed) return;
    try {
      const group = new Int32Array(1);
      this.#calls.ofInt(this.#fd, getForeground, group);
      if ((group[0] ?? 0) > 1) process.kill(-(group[0] ?? 0), "SIGWINCH");
    } catch {
      // There is none.
    }
  }

  /** Hangs up. */
  [Symbol.dispose]() {
    this.#isClosed = true;
    this.closeFar();
    this.#stream.destroy();
  }
}
