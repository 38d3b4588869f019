/** Bytes of a file on their way out. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { reopen } from "../directory.mjs";
import { RequestError } from "../request-error.mjs";
import { describeEntry, tagOf } from "./entries.mjs";
import { inPlace, opened } from "./host-path.mjs";

const { O_RDONLY, O_NONBLOCK, O_NOCTTY } = constants;
const blockBytes = 256 << 10;
const whole = { offset: 0, length: null, fromEnd: false };

/** @typedef {import("./host-path.mjs").HostPlace} HostPlace */
/** @typedef {import("../requests.mjs").Call} Call */

/**
 * Tells of the file first, with how many bytes will come, then sends them. Never more than the file had when it was opened:
 * one that grows is read to where it ended then.
 * @param {import("./syscalls.mjs").Syscalls} syscalls
 * @param {HostPlace & { offset: number, length: number | null, fromEnd: boolean, ifTag: string }} args `fromEnd`: the last
 *   `offset` bytes. `ifTag`: all of the file, when it has another tag.
 * @param {Call} call
 */
export async function readContent(syscalls, { ifTag, ...args }, call) {
  return inPlace(syscalls, args, { follow: true }, (found) =>
    opened(found, async (fd, stats) => {
      const isOther = ifTag !== "" && tagOf(stats) !== ifTag;
      const { offset, length, fromEnd } = isOther ? whole : args;
      if (stats.isDirectory()) throw Object.assign(new Error("EISDIR"), { code: "EISDIR" });
      if (!stats.isFile()) throw new RequestError("WRONG_TYPE", "is no regular file");
      await using file = await open(reopen(fd), O_RDONLY | O_NONBLOCK | O_NOCTTY);
      const entry = describeEntry(found.parent, found.name, stats);
      const size = Number(stats.size);
      const start = fromEnd ? Math.max(0, size - offset) : offset;
      if (start > size || (start === size && length !== null && size > 0)) {
        await call.emit({ entry, start, length: -1 });
        return {};
      }
      let left = Math.min(length ?? Infinity, size - start);
      const most = size === 0 ? blockBytes : Math.max(1, Math.min(blockBytes, left));
      /** What was sent from them the kernel has. @type {Buffer[]} */
      const blocks = [];
      const read = (/** @type {number} */ position) => {
        const reading = file.read(blocks.pop() ?? Buffer.allocUnsafeSlow(most), { position });
        // It is looked at in its turn.
        reading.catch(() => undefined);
        return reading;
      };
      let { bytesRead: bytes, buffer } = await read(start);
      // Files of the kernel's say nothing of their size, or too much.
      if (size === 0 || (bytes < Math.min(left, blockBytes) && bytes < blockBytes)) left = bytes;
      await call.emit({ entry, start, length: left });
      for (let position = start; bytes > 0 && left > 0;) {
        const [sent, block] = [Math.min(bytes, left), buffer];
        position += bytes;
        left -= sent;
        // While that is sent.
        const next = left > 0 ? read(position) : undefined;
        await call.output(block.subarray(0, sent), () => blocks.push(block));
        if (!next) return {};
        ({ bytesRead: bytes, buffer } = await next);
      }
      if (left > 0) throw new RequestError("WRONG_TYPE", "became shorter while it was read");
      return {};
    }),
  );
}
