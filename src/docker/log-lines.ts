/** Puts together the lines of a container's log from what the engine sends, each with its time in front. */
import type { LogRecord } from "../runtimes/runtime.ts";

/** A longer line comes in pieces. */
const maxLineBytes = 64 * 1024;
const headerBytes = 8;
const maxFrameBytes = 2 * 1024 * 1024;
/** The engine keeps longer lines in pieces of this, and puts the time in front of each. */
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

/** A line whose end has not come yet. */
interface OpenLine {
  readonly stream: LogRecord["stream"];
  readonly timeMs: number;
  /** What the engine puts in front of each piece of it. */
  readonly lead: readonly Buffer[];
  chunks: Buffer[];
  sizeBytes: number;
}

/**
 * Reads the frames of a container without a terminal: a header of eight bytes that tells the stream and the length, then
 * one line or a piece of one (Engine API, "Attach to a container").
 */
export class FramedLogReader {
  readonly #leadLength: (bytes: Buffer) => number;
  /** By stream, and by what is in front of it. */
  readonly #open = new Map<string, OpenLine>();
  #pending: Buffer = Buffer.alloc(0);

  /**
   * @param leadLength of what the engine says in front of each piece, behind the time, where several have one log. It stays
   *   in front of the line that the pieces come to.
   */
  constructor(leadLength: (bytes: Buffer) => number = () => 0) {
    this.#leadLength = leadLength;
  }

  /** The lines that `chunk` ends. @throws Error when these are no frames */
  read(chunk: Buffer): LogRecord[] {
    const lines: LogRecord[] = [];
    let bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    while (bytes.length >= headerBytes) {
      const stream = streams[bytes[0] ?? -1];
      const length = bytes.readUInt32BE(4);
      if (stream === undefined || length > maxFrameBytes) throw new Error("the engine's log has no frames");
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

  /** The lines that never ended. */
  end(): LogRecord[] {
    const rest = [...this.#open.values()].map(finish);
    this.#open.clear();
    return rest;
  }
}

/** Reads the bytes of a container with a terminal, where there is one stream and lines end as on a terminal. */
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
    // Times stand in the middle of a line where the engine's pieces meet: a piece is read when all of it is there.
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

  /** The line that never ended. */
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

/** Adds to a line, and gives away what is too much for one. */
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
  // A copy: what it is a part of would be kept otherwise.
  line.chunks.push(Buffer.from(rest));
  line.sizeBytes += rest.length;
}

/** The end of the last whole UTF-8 character before `at`. */
function characterStart(bytes: Buffer, at: number): number {
  for (let start = at; start > Math.max(0, at - 4); start--) {
    if (((bytes[start] ?? 0) & 0xc0) !== 0x80) return start;
  }
  return at;
}

function finish({ stream, timeMs, chunks }: OpenLine): LogRecord {
  return { timeMs, stream, text: textOf(chunks).replace(/\r$/, "") };
}

/** Bytes that are no UTF-8 become U+FFFD. */
function textOf(chunks: readonly Buffer[]): string {
  return (chunks.length === 1 ? chunks[0] : Buffer.concat(chunks))?.toString() ?? "";
}
