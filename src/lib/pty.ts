/** Pseudo terminals: pty(7), ioctl_tty(2). */
import { closeSync, constants, fchmodSync, fchownSync, openSync, writeSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { ReadStream } from "node:tty";
import { loadLibc, nativeError } from "./libc.ts";
import type { TerminalSize } from "./terminal.ts";

/** Requests of ioctl(2), the same on all of Linux's common architectures. */
const setLock = 0x40045431;
const getNumber = 0x80045430;
const setWindowSize = 0x5414;

/** Between two attempts to write to a terminal whose program does not read. */
const retryMs = 5;

type Ioctl<Argument> = (fd: number, request: number, argument: Argument) => number;

interface Calls {
  readonly ofInt: Ioctl<Int32Array>;
  readonly ofWindow: Ioctl<Uint16Array>;
}

/**
 * Loads the native calls. @returns opens a terminal whose far end is the user's
 * @throws Error where there are no terminals, or none is left
 */
export function loadPtys(): (owner: { uid: number; gid: number }, size: TerminalSize) => Pty {
  const libc = loadLibc();
  const calls: Calls = {
    ofInt: libc.func("int ioctl(int fd, unsigned long request, _Inout_ int *argument)"),
    ofWindow: libc.func("int ioctl(int fd, unsigned long request, _In_ uint16_t *argument)"),
  };
  return (owner, size) => new Pty(calls, owner, size);
}

export class Pty implements Disposable {
  /** Of the far end, which a session's leader opens to have it as its terminal. */
  readonly path: string;
  /** To be handed down. */
  readonly farFd: number;
  readonly #calls: Calls;
  readonly #fd: number;
  readonly #stream: ReadStream;
  #isFarOpen = true;
  #isClosed = false;

  constructor(calls: Calls, { uid, gid }: { uid: number; gid: number }, size: TerminalSize) {
    this.#calls = calls;
    this.#fd = openSync("/dev/ptmx", constants.O_RDWR | constants.O_NOCTTY | constants.O_NONBLOCK);
    try {
      const number = new Int32Array(1);
      if (calls.ofInt(this.#fd, setLock, new Int32Array(1)) !== 0) throw nativeError("ioctl");
      if (calls.ofInt(this.#fd, getNumber, number) !== 0) throw nativeError("ioctl");
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
    this.#stream = new ReadStream(this.#fd);
    // Its reader hears of them; before there is one nobody does.
    this.#stream.on("error", () => undefined);
    // The number is somebody else's from then on.
    this.#stream.once("close", () => (this.#isClosed = true));
  }

  /** To be called when the program has ended: what others have printed is then all that comes. */
  closeFar(): void {
    if (!this.#isFarOpen) return;
    this.#isFarOpen = false;
    closeSync(this.farFd);
  }

  /** What is printed there, until the last who has the far end open closes it. */
  async *read(): AsyncGenerator<Buffer, void> {
    try {
      yield* this.#stream as AsyncIterable<Buffer>;
    } catch (error) {
      if (!this.#isClosed && (error as NodeJS.ErrnoException).code !== "EIO") throw error;
    }
  }

  /** Types bytes; waits while the program does not read, until `signal` aborts or the terminal is closed. */
  async write(bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    let left = bytes;
    while (left.length > 0 && !this.#isClosed && signal?.aborted !== true) {
      try {
        left = left.subarray(writeSync(this.#fd, left));
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // Nobody is there any more.
        if (code === "EIO") return;
        if (code !== "EAGAIN") throw error;
        await wait(retryMs);
      }
    }
  }

  resize({ columns, rows }: TerminalSize): void {
    if (this.#isClosed) return;
    if (this.#calls.ofWindow(this.#fd, setWindowSize, Uint16Array.of(rows, columns, 0, 0)) !== 0) {
      throw nativeError("ioctl");
    }
  }

  /** Hangs up. */
  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.closeFar();
    this.#stream.destroy();
  }
}
