/** Reads the content of an opened file in pieces, without its holes. */
import { read, readSync } from "node:fs";
import { padding } from "../host/archive/tar-bytes.mjs";

export const blockBytes = 512;
/** Ranges from this size are read on another thread while the previous bytes are hashed. */
const largeBytes = 1 << 20;

/** @typedef {{ start: number, end: number }} Range Positions in a file; `end` is exclusive. */
/** @typedef {{ space: Buffer, bytes: number, error?: Error, done: Promise<void> }} RunningRead */
/**
 * Work in steps; the caller waits for each yielded promise, and may wait or stop in between.
 * @template T
 * @typedef {Generator<Promise<void> | undefined, T, void>} Steps
 */

/**
 * @typedef {object} ContentReader
 * @property {(bytes: number) => Buffer} space returns memory for content, possibly less than requested
 * @property {(bytes: number) => void} filled called with the number of bytes read into it, which stay valid until the
 *   next turn of the event loop
 * @property {(piece: Buffer) => void} read called with each piece
 */

/**
 * Reads a range. If the file has become shorter, the rest is read as zeros.
 * @param {number} fd
 * @param {Range} range
 * @param {ContentReader} reader
 * @returns {Steps<number>} number of missing bytes at the end
 */
export function* readContent(fd, range, reader) {
  const { start, end } = range;
  if (end - start >= largeBytes) return yield* readLarge(fd, range, reader);
  let missing = 0;
  for (let position = start; position < end;) {
    const space = reader.space(end - position);
    const bytes = readSync(fd, space, 0, space.length, position);
    if (bytes === 0) missing += clear(space);
    const piece = space.subarray(0, bytes || space.length);
    reader.filled(piece.length);
    reader.read(piece);
    position += piece.length;
    if (position < end) yield;
  }
  return missing;
}

/**
 * @param {number} fd
 * @param {Range} range
 * @param {ContentReader} reader
 * @returns {Steps<number>}
 */
function* readLarge(fd, { start, end }, reader) {
  let missing = 0;
  let running = startRead(fd, reader.space(end - start), start);
  for (let position = start; position < end;) {
    // If the steps are interrupted here, the read finishes in memory that is no longer used.
    yield running.done;
    if (running.error) throw running.error;
    const { space, bytes } = running;
    if (bytes === 0) missing += clear(space);
    const piece = space.subarray(0, bytes || space.length);
    reader.filled(piece.length);
    position += piece.length;
    if (position < end) running = startRead(fd, reader.space(end - position), position);
    reader.read(piece);
  }
  return missing;
}

/**
 * @param {number} fd
 * @param {Buffer} space
 * @param {number} position
 * @returns {RunningRead}
 */
function startRead(fd, space, position) {
  /** @type {PromiseWithResolvers<void>} */
  const { promise, resolve } = Promise.withResolvers();
  /** @type {RunningRead} */
  const running = { space, bytes: 0, done: promise };
  read(fd, space, 0, space.length, position, (error, bytes) => {
    running.bytes = bytes;
    if (error) running.error = error;
    resolve();
  });
  return running;
}

/** @param {Buffer} space @returns {number} number of cleared bytes */
function clear(space) {
  space.fill(0);
  return space.length;
}

/**
 * Finds the data of a sparse file, in whole blocks as GNU tar does; undefined if it has no holes.
 * @param {import("../host/syscalls.mjs").Syscalls} syscalls
 * @param {number} fd
 * @param {number} size
 * @returns {Range[] | undefined}
 */
export function dataRanges(syscalls, fd, size) {
  /** @type {Range[]} */
  const ranges = [];
  let end = 0;
  for (let data = syscalls.nextData(fd, 0, size); data; data = syscalls.nextData(fd, end, size)) {
    const start = Math.max(end, data.start - (data.start % blockBytes));
    const stop = Math.min(size, Math.ceil(data.end / blockBytes) * blockBytes);
    // Data was written beyond the end in the meantime.
    if (stop <= start) break;
    end = stop;
    ranges.push({ start, end });
    if (end === size) break;
  }
  if (ranges[0]?.start === 0 && ranges[0].end === size) return undefined;
  // The end of the file.
  if (end < size) ranges.push({ start: size, end: size });
  return ranges;
}

/** The list of data ranges that stands before the content of a sparse file. @param {Range[]} ranges */
export function rangesText(ranges) {
  const lines = [ranges.length, ...ranges.flatMap(({ start, end }) => [start, end - start])];
  const text = Buffer.from(`${lines.join("\n")}\n`);
  return Buffer.concat([text, padding(text.length)]);
}
