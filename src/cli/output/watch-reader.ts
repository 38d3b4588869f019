/**
 * Detects that nothing reads a pipe any more while there is nothing to write. Node would notice only at the
 * next write.
 */
import { fstat } from "node:fs";
import { promisify } from "node:util";
import { loadLibc } from "../../sys/libc.ts";

const intervalMs = 500;
/** `POLLERR` for a pipe and `POLLHUP` for a socket, poll(2); both are always reported. */
const gone = 0x008 | 0x010;

/**
 * Calls `onClosed` once when the last reader of a pipe or socket is closed, until disposed. Files and terminals
 * have no such reader. Without the native call, only the next write detects it.
 */
export async function watchReader(fd: number, onClosed: () => void): Promise<Disposable> {
  const stats = await promisify(fstat)(fd);
  const hasLeft = stats.isFIFO() || stats.isSocket() ? loadPoll(fd) : undefined;
  if (hasLeft === undefined) return { [Symbol.dispose]: () => undefined };
  const timer = setInterval(() => {
    if (!hasLeft()) return;
    clearInterval(timer);
    onClosed();
  }, intervalMs);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** @returns a non-blocking check of the descriptor; undefined if the native call is not available */
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
