/** Writes an app's log; see log-files.mjs for its format. */
import { close, fstat, ftruncate, mkdir, open, read, unlink, write } from "node:fs";
import { promisify } from "node:util";
import { maxLineBytes, maxRecordBytes, prefixBytes, listLogFiles, logFileName } from "./log-files.mjs";

const [closeFile, statFile, truncateFile, makeDirectory, openFile, readFile, removeFile, writeFile] = [
  promisify(close),
  promisify(fstat),
  promisify(ftruncate),
  promisify(mkdir),
  promisify(open),
  promisify(read),
  promisify(unlink),
  promisify(write),
];

/** @typedef {"o" | "e" | "s"} Source */

const newlineByte = 10;
const bufferBytes = 4 * maxRecordBytes;
/** Milliseconds until the start of an unfinished line is written, such as a prompt. */
const defaultUnfinishedMs = 2_000;
const maxRecentLines = 20;
const lastLineChars = 1024;

/**
 * Appends records with timestamps, one write at a time. A caller that awaits `write` before it reads on is limited to
 * the disk's speed and uses one buffer. Output that cannot be written is dropped and counted.
 */
export class LogWriter {
  #directory;
  #maxBytes;
  #maxFiles;
  #onAdvance;
  #buffer = Buffer.allocUnsafeSlow(bufferBytes);
  #used = 0;
  #records = 0;
  #droppedRecords = 0;
  /** Unfinished lines by source. @type {Record<Source, Buffer>} */
  #pending = { o: Buffer.alloc(0), e: Buffer.alloc(0), s: Buffer.alloc(0) };
  /** Sources of unfinished lines whose start is written. @type {Set<Source>} */
  #started = new Set();
  /** @type {Map<Source, NodeJS.Timeout>} */
  #timers = new Map();
  #unfinishedMs;
  /** @type {Promise<void>} */
  #previous = Promise.resolve();
  /** @type {number | undefined} */
  #file;
  #start = 0;
  #size = 0;
  /** @type {string[]} */
  #lastLines = [];

  /**
   * @param {object} options
   * @param {string} options.directory
   * @param {number} options.maxBytes limit of one file
   * @param {number} options.maxFiles number of files, the current one included
   * @param {() => void} [options.onAdvance] called whenever `position` has increased
   * @param {number} [options.unfinishedMs] milliseconds until the start of an unfinished line is written
   */
  constructor({
    directory,
    maxBytes,
    maxFiles,
    onAdvance = () => undefined,
    unfinishedMs = defaultUnfinishedMs,
  }) {
    this.#directory = directory;
    this.#maxBytes = maxBytes;
    this.#maxFiles = maxFiles;
    this.#onAdvance = onAdvance;
    this.#unfinishedMs = unfinishedMs;
  }

  get directory() {
    return this.#directory;
  }

  /** Position after the last record. */
  get position() {
    return this.#start + this.#size;
  }

  /** Finds the end of the log, so that `position` is known before the first record. Never rejects. */
  open() {
    return this.#runAfterPrevious(async () => {
      this.#file ??= await this.#openLatest();
    });
  }

  /** The app's latest lines since {@link forgetLines}, at most 20, each cut at 1,024 characters. */
  get lastLines() {
    return [...this.#lastLines];
  }

  /** Clears `lastLines`, for the next start of the app. */
  forgetLines() {
    this.#lastLines = [];
  }

  /**
   * Appends output of the app. The chunk may be reused once this resolves. Never rejects.
   * @param {Source} source
   * @param {Buffer} chunk
   * @returns {Promise<void>}
   */
  write(source, chunk) {
    return this.#runAfterPrevious(() => this.#append(source, chunk));
  }

  /**
   * Ends the unfinished line of a source, if any.
   * @param {Source} source
   */
  finishLine(source) {
    return this.#runAfterPrevious(async () => {
      if (this.#pending[source].length > 0) await this.#append(source, Buffer.from("\n"));
    });
  }

  /**
   * Appends a record of the supervisor.
   * @param {string} text one line
   */
  note(text) {
    return this.write("s", Buffer.from(`${text}\n`));
  }

  /** Resolves when everything passed before has been written or dropped. */
  close() {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    return this.#runAfterPrevious(async () => {
      if (this.#file !== undefined) await closeFile(this.#file);
      this.#file = undefined;
    });
  }

  /** @param {() => Promise<void>} work */
  #runAfterPrevious(work) {
    const done = this.#previous.then(work);
    this.#previous = done.catch(() => undefined);
    return this.#previous;
  }

  /**
   * @param {Source} source
   * @param {Buffer} chunk
   */
  async #append(source, chunk) {
    clearTimeout(this.#timers.get(source));
    this.#timers.delete(source);
    const prefix = prefixOf(source);
    const pieceLetter = source.toUpperCase().charCodeAt(0);
    let from = 0;
    while (from < chunk.length) {
      const newline = chunk.indexOf(newlineByte, from);
      const pending = this.#pending[source];
      const end = Math.min(newline === -1 ? chunk.length : newline, from + maxLineBytes - pending.length);
      const whole = end === newline;
      if (!whole && pending.length + end - from < maxLineBytes) {
        this.#pending[source] = Buffer.concat([pending, chunk.subarray(from, end)]);
        this.#writeStartLater(source);
        break;
      }
      const isEmptyRest = whole && pending.length === 0 && end === from && this.#started.has(source);
      if (whole) this.#started.delete(source);
      if (isEmptyRest) {
        from = end + 1;
        continue;
      }
      if (this.#used + maxRecordBytes > bufferBytes) await this.#flush();
      prefix.copy(this.#buffer, this.#used);
      if (!whole) this.#buffer[this.#used + prefixBytes - 2] = pieceLetter;
      this.#used += prefixBytes;
      this.#used += pending.copy(this.#buffer, this.#used);
      this.#used += chunk.copy(this.#buffer, this.#used, from, end);
      this.#buffer[this.#used++] = newlineByte;
      this.#records++;
      if (pending.length > 0) this.#pending[source] = Buffer.alloc(0);
      from = whole ? end + 1 : end;
    }
    await this.#flush();
  }

  /**
   * Writes the start of a line that does not end soon, such as a prompt. The rest is written when the line ends, so
   * that a line that grows slowly, such as a row of dots, has only two records.
   * @param {Source} source
   */
  #writeStartLater(source) {
    if (this.#started.has(source)) return;
    const timer = setTimeout(() => {
      void this.#runAfterPrevious(async () => {
        const pending = this.#pending[source];
        if (this.#timers.get(source) !== timer || pending.length === 0) return;
        this.#timers.delete(source);
        this.#started.add(source);
        this.#pending[source] = Buffer.alloc(0);
        this.#used = prefixOf(source.toUpperCase()).copy(this.#buffer);
        this.#used += pending.copy(this.#buffer, this.#used);
        this.#buffer[this.#used++] = newlineByte;
        this.#records = 1;
        await this.#flush();
      });
    }, this.#unfinishedMs);
    this.#timers.set(source, timer.unref());
  }

  async #flush() {
    if (this.#used === 0) return;
    const records = this.#buffer.subarray(0, this.#used);
    this.#rememberLines(records);
    // Written together with the next records, not before: on a full disk the marker would take the last free space.
    const dropped = this.#droppedRecords;
    const stored = dropped > 0 ? Buffer.concat([droppedMarker(dropped), records]) : records;
    if (await this.#store(stored)) this.#droppedRecords = 0;
    else this.#droppedRecords += this.#records;
    this.#used = 0;
    this.#records = 0;
    this.#onAdvance();
  }

  /**
   * Appends complete records to the log, all or none.
   * @param {Buffer} records
   * @returns {Promise<boolean>} whether they were written
   */
  async #store(records) {
    try {
      const file = await this.#fileFor(records.length);
      for (let done = 0; done < records.length;) {
        done += (await writeFile(file, records, done, records.length - done, this.#size + done)).bytesWritten;
      }
      this.#size += records.length;
      return true;
    } catch {
      // The disk is full or broken. Remove partial records, because each position must be the start of a record.
      if (this.#file !== undefined) await truncateFile(this.#file, this.#size).catch(() => undefined);
      return false;
    }
  }

  /**
   * The file to append `length` bytes to: the current one, or a new one if it would become too long.
   * @param {number} length
   */
  async #fileFor(length) {
    this.#file ??= await this.#openLatest();
    if (this.#size === 0 || this.#size + length <= this.#maxBytes) return this.#file;
    const position = this.position;
    const files = await listLogFiles(this.#directory);
    // Delete old files first, which frees the space for the new one on a full disk.
    for (const { path } of files.slice(0, Math.max(0, files.length - this.#maxFiles + 1))) {
      await removeFile(path).catch(() => undefined);
    }
    const next = await openFile(`${this.#directory}/${logFileName(position)}`, "w", 0o600);
    await closeFile(this.#file);
    [this.#file, this.#start, this.#size] = [next, position, 0];
    return next;
  }

  async #openLatest() {
    await makeDirectory(this.#directory, { recursive: true, mode: 0o700 });
    const latest = (await listLogFiles(this.#directory)).at(-1);
    const start = latest?.start ?? 0;
    const file = await openFile(`${this.#directory}/${logFileName(start)}`, latest ? "r+" : "w+", 0o600);
    this.#start = start;
    this.#size = await endOfRecords(file);
    return file;
  }

  /** @param {Buffer} records */
  #rememberLines(records) {
    const lines = [];
    for (let end = records.length; end > 0 && lines.length < maxRecentLines;) {
      const start = end < 2 ? 0 : records.lastIndexOf(newlineByte, end - 2) + 1;
      const source = String.fromCharCode(records[start + prefixBytes - 2] ?? 0);
      if (source !== "s") {
        const text = records.toString(
          "utf8",
          start + prefixBytes,
          Math.min(end - 1, start + prefixBytes + 4 * lastLineChars),
        );
        lines.unshift(text.slice(0, lastLineChars));
      }
      end = start;
    }
    this.#lastLines = [...this.#lastLines, ...lines].slice(-maxRecentLines);
  }
}

/** @param {string} letter of the source, or of a piece */
function prefixOf(letter) {
  return Buffer.from(`${new Date().toISOString()} ${letter} `, "latin1");
}

/**
 * End of the last complete record: a crash may have left a partial one, which is cut off.
 * @param {number} file
 */
async function endOfRecords(file) {
  const { size } = await statFile(file);
  const tail = Buffer.alloc(Math.min(size, maxRecordBytes));
  await readFile(file, tail, 0, tail.length, size - tail.length);
  const end = size - tail.length + tail.lastIndexOf(newlineByte) + 1;
  if (end < size) await truncateFile(file, end);
  return end;
}

/** @param {number} records */
function droppedMarker(records) {
  return Buffer.from(`${new Date().toISOString()} s dropped ${records} lines: failed to write to the disk\n`);
}
