/** Assembles the lines of a container's log from the engine's stream, in which each piece begins with its time. */
import type { LogRecord } from "../logs/log-chunk.ts";

/** Longer lines are split. */
const maxLineBytes = 64 * 1024;
const headerBytes = 8;
const maxFrameBytes = 2 * 1024 * 1024;
/** The engine splits longer lines into pieces of this size, each with its time. */
const enginePieceBytes = 16 * 1024;
const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) /;
const maxTimeLength = 40;
const lineFeed = 0x0a;

const streams: Readonly<Record<number, LogRecord["stream"]>> = {
  0: "stdout",
  1: "stdout",
  2: "stderr",
  3: "svc",
};

/** An unfinished line. */
interface OpenLine {
  readonly stream: LogRecord["stream"];
  readonly timeMs: number;
  /** Prefix that the engine puts in front of each piece. */
  readonly lead: readonly Buffer[];
  chunks: Buffer[];
  sizeBytes: number;
}

/**
 * Reads the stream of a container without a terminal: frames with a header of eight bytes, which holds the stream and
 * the length, and then a line or a piece of one (Engine API, "Attach to a container").
 */
export class FramedLogReader {
  readonly #leadLength: (bytes: Buffer) => number;
  /** By stream and lead. */
  readonly #open = new Map<string, OpenLine>();
  #pending: Buffer = Buffer.alloc(0);

  /**
   * @param leadLength length of what the engine puts between the time and the text of each piece in a log of several
   *   containers. The assembled line keeps one copy of it in front.
   */
  constructor(leadLength: (bytes: Buffer) => number = () => 0) {
    this.#leadLength = leadLength;
  }

  /** Returns the lines that `chunk` completes. @throws Error when the data is not framed */
  read(chunk: Buffer): LogRecord[] {
    const lines: LogRecord[] = [];
    let bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (bytes.length >= headerBytes) {
      const stream = streams[bytes[0] ?? -1];
      const length = bytes.readUInt32BE(4);
      if (stream === undefined || length > maxFrameBytes) throw new Error("the engine's log is not framed");
      if (bytes.length < headerBytes + length) break;
      this.#readFrame(stream, bytes.subarray(headerBytes, headerBytes + length), lines);
      bytes = bytes.subarray(headerBytes + length);
    }
    this.#pending = bytes;
    return lines;
  }

  #readFrame(stream: LogRecord["stream"], frame: Buffer, lines: LogRecord[]): void {
    const { timeMs, length } = leadingTime(frame);
    const leadEnd = length + this.#leadLength(frame.subarray(length));
    const lead = leadEnd > length ? [Buffer.from(frame.subarray(length, leadEnd))] : [];
    const key = `${stream} ${lead.join()}`;
    let rest = frame.subarray(leadEnd);
    while (rest.length > 0) {
      const end = rest.indexOf(lineFeed);
      const part = end === -1 ? rest : rest.subarray(0, end);
      rest = rest.subarray(end === -1 ? rest.length : end + 1);
      const line = this.#open.get(key) ?? { stream, timeMs, lead, chunks: [...lead], sizeBytes: 0 };
      this.#open.set(key, line);
      append(line, part, lines);
      if (end === -1) continue;
      lines.push(finish(line));
      this.#open.delete(key);
    }
  }

  /** Returns the unfinished lines. */
  end(): LogRecord[] {
    const rest = [...this.#open.values()].map(finish);
    this.#open.clear();
    return rest;
  }
}

/** Reads the stream of a container with a terminal: one stream, with a terminal's line ends. */
export class TerminalLogReader {
  #line: OpenLine | undefined;
  #pending: Buffer = Buffer.alloc(0);

  read(chunk: Buffer): LogRecord[] {
    const lines: LogRecord[] = [];
    let bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      const end = bytes.indexOf(lineFeed);
      if (end === -1) break;
      this.#readPart(bytes.subarray(0, end), lines);
      if (this.#line !== undefined) lines.push(finish(this.#line));
      this.#line = undefined;
      bytes = bytes.subarray(end + 1);
    }
    // The engine splits long lines into pieces and puts a time before each one. Read only complete pieces, to find those times.
    while (bytes.length >= maxLineBytes) {
      const piece = this.#pieceLength(bytes);
      this.#readPart(bytes.subarray(0, piece), lines);
      bytes = bytes.subarray(piece);
    }
    this.#pending = bytes;
    return lines;
  }

  #pieceLength(bytes: Buffer): number {
    return leadingTime(bytes).length + enginePieceBytes;
  }

  #readPart(part: Buffer, lines: LogRecord[]): void {
    let rest = part;
    do {
      const { timeMs, length } = leadingTime(rest);
      this.#line ??= { stream: "stdout", timeMs, lead: [], chunks: [], sizeBytes: 0 };
      const content = rest.subarray(length, length + enginePieceBytes);
      append(this.#line, content, lines);
      rest = rest.subarray(length + content.length);
    } while (rest.length > 0);
  }

  /** Returns the unfinished line. */
  end(): LogRecord[] {
    const lines: LogRecord[] = [];
    if (this.#pending.length > 0) this.#readPart(this.#pending, lines);
    if (this.#line !== undefined) lines.push(finish(this.#line));
    this.#pending = Buffer.alloc(0);
    this.#line = undefined;
    return lines;
  }
}

function leadingTime(bytes: Buffer): { timeMs: number; length: number } {
  const text = timePattern.exec(bytes.subarray(0, maxTimeLength).toString("latin1"))?.[0];
  return text === undefined
    ? { timeMs: 0, length: 0 }
    : { timeMs: Date.parse(text.trimEnd()), length: text.length };
}

/** Appends to a line, and moves completed pieces of an overlong line to `lines`. */
function append(line: OpenLine, part: Buffer, lines: LogRecord[]): void {
  let rest = part;
  while (line.sizeBytes + rest.length > maxLineBytes) {
    const cut = characterStart(rest, maxLineBytes - line.sizeBytes);
    line.chunks.push(rest.subarray(0, cut));
    lines.push({ timeMs: line.timeMs, stream: line.stream, text: textOf(line.chunks) });
    rest = rest.subarray(cut);
    line.chunks = [...line.lead];
    line.sizeBytes = 0;
  }
  // Copy, so that the chunk's whole buffer is not retained.
  line.chunks.push(Buffer.from(rest));
  line.sizeBytes += rest.length;
}

/** The end of the last complete UTF-8 character before `at`. */
function characterStart(bytes: Buffer, at: number): number {
  for (let start = at; start > Math.max(0, at - 4); start--) {
    if (((bytes[start] ?? 0) & 0xc0) !== 0x80) return start;
  }
  return at;
}

function finish({ stream, timeMs, chunks }: OpenLine): LogRecord {
  return { timeMs, stream, text: textOf(chunks).replace(/\r$/, "") };
}

/** Invalid UTF-8 becomes U+FFFD. */
function textOf(chunks: readonly Buffer[]): string {
  return (chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))?.toString() ?? "";
}
