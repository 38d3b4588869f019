/** Notices that nobody reads a pipe any more while there is nothing to write: node learns it from a failed write alone. */
import { fstat } from "node:fs";
import { promisify } from "node:util";
import { loadLibc } from "../lib/libc.ts";

const intervalMs = 500;
/** `POLLERR` of a pipe and `POLLHUP` of a socket, poll(2); both are reported without being asked for. */
const gone = 0x008 | 0x010;

/**
 * Calls `onGone` once when the last reader of a pipe or socket has gone, until disposed. A file or a terminal has no
 * reader that could go, and without the native call the next write has to tell.
 */
export async function watchReader(fd: number, onGone: () => void): Promise<Disposable> {
  const stats = await promisify(fstat)(fd);
  const hasLeft = stats.isFIFO() || stats.isSocket() ? loadPoll(fd) : undefined;
  if (hasLeft === undefined) return { [Symbol.dispose]: () => undefined };
  const timer = setInterval(() => {
    if (!hasLeft()) return;
    clearInterval(timer);
    onGone();
  }, intervalMs);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** @returns a look at the descriptor that does not wait; undefined where there is no such call */
function loadPoll(fd: number): (() => boolean) | undefined {
  try {
    const poll = loadLibc().func("int poll(_Inout_ int16_t *fds, unsigned long count, int timeoutMs)");
    return () => {
      // `struct pollfd`: the descriptor in 32 bits, then `events` and `revents`.
      const pollfd = new Int16Array(4);
      new Int32Array(pollfd.buffer, 0, 1)[0] = fd;
      const ready = poll(pollfd, 1, 0) as number;
      return ready === 1 && ((pollfd[3] ?? 0) & gone) !== 0;
    };
  } catch {
    return undefined;
  }
}
