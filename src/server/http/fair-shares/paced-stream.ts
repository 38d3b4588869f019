/**
 * The stream of an HTTP/2 or WebSocket connection. It passes what it receives to the parser in small pieces, in fair order of
 * users. The parser would otherwise read up to 2 MiB per connection at once: 200,000 frames block the event loop for a second.
 */
import { Duplex } from "node:stream";
import type { FairQueue } from "../../../lib/fair-queue.ts";
import type { Connection } from "../connection.ts";

/** Limit for one piece. */
const maxPieceBytes = 16 * 1024;

export class PacedStream extends Duplex {
  readonly #connection: Connection;
  readonly #queue: FairQueue;
  /** Received bytes that are not parsed yet. The socket is paused while there are any. */
  #arrived: Buffer | undefined;
  #hasEnded = false;
  /** Whether the reader's buffer is full, until the next {@link _read}. */
  #isFull = false;
  #readBytes = 0;

  /** Takes over the connection's socket, which must be half-open. Nothing else may read from or write to it. */
  constructor(connection: Connection, queue: FairQueue) {
    super({ allowHalfOpen: false });
    this.#connection = connection;
    this.#queue = queue;
    const { socket } = connection;
    socket.on("error", (error) => this.destroy(error)).on("close", () => this.destroy());
    socket.on("end", () => {
      this.#hasEnded = true;
      this.#next();
    });
    socket.on("data", (bytes: Buffer) => {
      this.#arrived = bytes;
      socket.pause();
      this.#next();
    });
    socket.resume();
  }

  /** `ws` calls this to turn the timeout off, because consoles send their own pings. */
  setTimeout(timeoutMs: number): this {
    this.#connection.socket.setTimeout(timeoutMs);
    return this;
  }

  override _read(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    this.#next();
  }

  override _write(bytes: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#connection.socket.write(bytes, done);
  }

  override _writev(
    pieces: readonly { readonly chunk: Buffer }[],
    done: (error?: Error | null) => void,
  ): void {
    const { socket } = this.#connection;
    socket.cork();
    for (const [at, { chunk }] of pieces.entries())
      socket.write(chunk, at === pieces.length - 1 ? done : undefined);
    socket.uncork();
  }

  override _final(done: () => void): void {
    this.#connection.socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#connection.socket.destroy();
    done(error);
  }

  #next(): void {
    const connection = this.#connection;
    if (connection.isQueued || this.#isFull || this.destroyed) return;
    if (this.#arrived === undefined) {
      if (this.#hasEnded) this.push(null);
      return;
    }
    connection.isQueued = true;
    // The first requests identify the caller. In the queue that all unidentified callers share, they would wait too long.
    if (connection.share.kind === "unknown" && this.#readBytes < maxPieceBytes) this.#passPiece();
    else this.#queue.run(connection.share.name, () => this.#passPiece());
  }

  #passPiece(): void {
    const [bytes, connection] = [this.#arrived, this.#connection];
    if (bytes === undefined || this.destroyed) {
      connection.isQueued = false;
      return;
    }
    const piece = bytes.subarray(0, maxPieceBytes);
    this.#arrived = piece.length < bytes.length ? bytes.subarray(piece.length) : undefined;
    this.#readBytes += piece.length;
    this.#isFull = !this.push(piece);
    if (this.#arrived === undefined) connection.socket.resume();
    // Node reports the requests in the piece before this callback runs.
    process.nextTick(() => {
      connection.isQueued = false;
      this.#next();
    });
  }
}
