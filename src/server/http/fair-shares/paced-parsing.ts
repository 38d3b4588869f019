/**
 * Passes HTTP/1.1 data to Node's parser in fair order of users, one request at a time. Node itself would
 * parse all received data at once: 1,800 requests per read of each of a thousand connections. Unread data
 * stays in the kernel.
 */
import type { FairQueue } from "../../../lib/fair-queue.ts";
import { freeMemory } from "../../../lib/buffer-pool.ts";
import type { Connection } from "../connection.ts";

/** Ends a head. In a chunked body it only causes a pause. */
const headEnd = Buffer.from("\r\n\r\n");
/** Limit for one turn. Bodies are not limited, because passing them on is cheap. */
const maxPieceBytes = 16 * 1024;
const [carriageReturn, lineFeed] = [0x0d, 0x0a];
const empty = Buffer.alloc(0);

/** Takes over from Node's server, which already has the connection. */
export function parseFairly(connection: Connection, turns: FairQueue): void {
  const { socket } = connection;
  const [parse] = socket.listeners("data") as ((piece: Buffer) => void)[];
  if (parse === undefined) throw new Error("nobody reads the connection");
  const cut = new PieceCutter(connection);
  /** Bytes just received, until they are parsed or buffered in the socket. */
  let arrived: Buffer | undefined;
  /** Whether waiting data is buffered in the socket, which reads no more until it is parsed. */
  let isKept = false;
  /** Whether buffered data is being read for parsing. */
  let isTaking = false;
  /** Whether {@link next} is running: nested calls return, and its loop takes the next piece. Recursion would overflow the stack. */
  let isParsing = false;
  let isOver = false;
  let parsedBytes = 0;

  const receive = (bytes: Buffer): void => {
    arrived = bytes;
    if (isTaking) return;
    next();
    keepRest();
  };
  const keepRest = (): void => {
    if (arrived === undefined) return;
    isKept = true;
    socket.pause();
    socket.unshift(arrived);
    arrived = undefined;
  };
  const canParse = (): boolean =>
    !connection.isQueued &&
    !isOver &&
    !socket.destroyed &&
    (arrived !== undefined || isKept) &&
    connection.isReadyForMore;
  const next = (): void => {
    if (isParsing) return;
    isParsing = true;
    while (canParse()) {
      // The first head identifies the caller. In the queue that all unidentified callers share, it would wait too long.
      if (connection.share.kind === "unknown" && parsedBytes < maxPieceBytes) {
        parsePiece();
      } else {
        connection.isQueued = true;
        turns.run(connection.share.name, parseInTurn);
      }
    }
    isParsing = false;
  };
  const parseInTurn = (): void => {
    connection.isQueued = false;
    connection.isInParser = true;
    const isInLoop = isParsing;
    isParsing = true;
    parsePiece();
    isParsing = isInLoop;
    connection.isInParser = false;
    next();
  };
  const parsePiece = (): void => {
    // Node has reused the parser for another connection, which would receive this data.
    if (isOver || socket.destroyed) return;
    const bytes = take();
    if (bytes === undefined) return;
    const isBody = connection.bodyLeftBytes > 0;
    const size = cut.sizeOf(bytes);
    parsedBytes += size;
    if (size < bytes.length) {
      arrived = bytes.subarray(size);
      keepRest();
    }
    parse(size < bytes.length ? bytes.subarray(0, size) : bytes);
    // The parser has copied the body.
    if (isBody && size === bytes.length) freeMemory(bytes);
  };
  const take = (): Buffer | undefined => {
    if (arrived === undefined && isKept) {
      isKept = false;
      isTaking = true;
      // `read` emits "data". It runs before the parser, so that the parser sees whether Node has paused the socket.
      socket.read();
      socket.resume();
      isTaking = false;
    }
    const bytes = arrived;
    arrived = undefined;
    return bytes;
  };
  // Node emits "resume" when it wants more data, and "drain" or "resume" after a response or body that was paused.
  socket.on("data", receive).on("resume", next).on("drain", next).off("data", parse);
  connection.onEnd = next;
  connection.onHold = () => {
    isOver = true;
    socket.off("data", receive).off("resume", next).off("drain", next);
  };
  socket.resume();
}

/** Cuts received bytes into pieces that each contain at most one request head. */
class PieceCutter {
  readonly #connection: Pick<Connection, "bodyLeftBytes">;
  /** The last bytes of an unfinished head, because the end of a head may be split between two reads. */
  #tail: Buffer = empty;

  constructor(connection: Pick<Connection, "bodyLeftBytes">) {
    this.#connection = connection;
  }

  /** Size of the next piece. */
  sizeOf(bytes: Buffer): number {
    const { bodyLeftBytes } = this.#connection;
    if (bodyLeftBytes > 0) {
      const size = Math.min(bytes.length, bodyLeftBytes);
      this.#connection.bodyLeftBytes -= size;
      return size;
    }
    const end = this.#endOfHead(bytes);
    const size = Math.min(end ?? bytes.length, maxPieceBytes);
    this.#tail = size === end ? empty : lastOf(this.#tail, bytes.subarray(0, size));
    return size;
  }

  #endOfHead(bytes: Buffer): number | undefined {
    const seam = Buffer.concat([this.#tail, bytes.subarray(0, headEnd.length - 1)]).indexOf(headEnd);
    if (seam >= 0) return seam + headEnd.length - this.#tail.length;
    // Blank lines before a head are ignored (RFC 9112, section 2.2). As pieces of their own, each would cost as much as a head.
    const at = bytes.indexOf(headEnd, this.#tail.length === 0 ? blankBytesOf(bytes) : 0);
    return at < 0 ? undefined : at + headEnd.length;
  }
}

function blankBytesOf(bytes: Buffer): number {
  let count = 0;
  while (count < maxPieceBytes && (bytes[count] === carriageReturn || bytes[count] === lineFeed)) count++;
  return count;
}

function lastOf(tail: Buffer, piece: Buffer): Buffer {
  return Buffer.concat([tail, piece.subarray(1 - headEnd.length)]).subarray(1 - headEnd.length);
}
