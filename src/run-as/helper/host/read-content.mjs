/** Sends the content of a file. */
import { openForReading } from "../directory.mjs";
import { RequestError } from "../request-error.mjs";
import { describeEntry, tagOf } from "./entries.mjs";
import { withParent, opened } from "./host-path.mjs";

const blockBytes = 256 << 10;
const whole = { offset: 0, length: null, fromEnd: false };

/** @typedef {import("./host-path.mjs").GuardedPath} GuardedPath */
/** @typedef {import("node:fs/promises").FileHandle} FileHandle */
/** @typedef {import("../requests.mjs").Call} Call */

/**
 * Reports the file and the number of bytes first, then sends them. A file that grows is only read up to its size when
 * it was opened.
 * @param {import("./syscalls.mjs").Syscalls} syscalls
 * @param {GuardedPath & { offset: number, length: number | null, fromEnd: boolean, ifTag: string }} args `fromEnd`: read
 *   the last `offset` bytes. `ifTag`: read the whole file if its tag differs
 * @param {Call} call
 */
export async function readContent(syscalls, { ifTag, ...args }, call) {
  return withParent(syscalls, args, { follow: true }, (found) =>
    opened(found, async (fd, stats) => {
      const isOther = ifTag !== "" && tagOf(stats) !== ifTag;
      const { offset, length, fromEnd } = isOther ? whole : args;
      if (stats.isDirectory()) throw Object.assign(new Error("EISDIR"), { code: "EISDIR" });
      if (!stats.isFile()) throw new RequestError("WRONG_TYPE", "is not a regular file");
      await using file = await openForReading(fd);
      const entry = describeEntry(found.parent, found.name, stats);
      const size = Number(stats.size);
      const start = fromEnd ? Math.max(0, size - offset) : offset;
      if (start > size || (start === size && length !== null && size > 0)) {
        await call.emit({ entry, start, length: -1 });
        return {};
      }
      let remaining = Math.min(length ?? Infinity, size - start);
      const first = Buffer.allocUnsafeSlow(
        size === 0 ? blockBytes : Math.max(1, Math.min(blockBytes, remaining)),
      );
      const { bytesRead } = await file.read(first, { position: start });
      // Files of the kernel report a size of 0, or too large a size.
      if (size === 0 || bytesRead < Math.min(remaining, blockBytes)) remaining = bytesRead;
      await call.emit({ entry, start, length: remaining });
      const sent = Math.min(bytesRead, remaining);
      if (sent > 0) await call.output(first.subarray(0, sent));
      await sendBlocks(file, start + sent, remaining - sent, call);
      return {};
    }),
  );
}

/**
 * Sends bytes of a file, and reads the next ones in the meantime.
 * @param {FileHandle} file
 * @param {number} start
 * @param {number} bytes
 * @param {Call} call
 */
async function sendBlocks(file, start, bytes, call) {
  const end = start + bytes;
  /** Buffers whose bytes the kernel has copied. @type {Buffer[]} */
  const free = [];
  const read = (/** @type {number} */ position) => {
    const length = Math.min(blockBytes, end - position);
    const buffer = free.pop() ?? Buffer.allocUnsafeSlow(Math.min(blockBytes, bytes));
    const reading = file.read(buffer, { length, position });
    // The rejection is handled when it is awaited.
    reading.catch(() => undefined);
    return reading;
  };
  if (bytes === 0) return;
  let next = read(start);
  for (let position = start; position < end;) {
    const { bytesRead, buffer } = await next;
    if (bytesRead === 0) throw new RequestError("WRONG_TYPE", "was truncated while it was read");
    position += bytesRead;
    if (position < end) next = read(position);
    await call.output(buffer.subarray(0, bytesRead), () => free.push(buffer));
  }
}
