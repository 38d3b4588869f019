/**
 * HTTP/1.1 over a unix socket, one connection per request: a command-line program needs no more. Loading and
 * warming up Node's own client takes a third of the time of a short command.
 */
import type { ClientHttp2Stream, OutgoingHttpHeaders } from "node:http2";
import { connect, type Socket } from "node:net";
import { SvcError } from "../../errors.ts";
import { ResponseParser } from "./response-parser.ts";

/** The daemon's socket, and the headers of every request to it. */
export interface SocketEndpoint {
  readonly socketPath: string;
  /** Sent with every request, such as the user who called sudo. */
  readonly headers: Readonly<Record<string, string>>;
}

/** A remote daemon, over one connection for all calls. */
export interface RemoteEndpoint extends AsyncDisposable {
  readonly headers: Readonly<Record<string, string>>;
  /** Like {@link send}. */
  send(request: HttpRequest): Promise<HttpResponse>;
  /** For callers that use HTTP/2 directly. */
  request(headers: OutgoingHttpHeaders): Promise<ClientHttp2Stream>;
}

export type Endpoint = SocketEndpoint | RemoteEndpoint;

export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Pieces are sent as fast as the daemon reads them. */
  readonly body?: Uint8Array | string | AsyncIterable<Uint8Array> | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the response must be complete. */
  readonly timeoutMs?: number | undefined;
}

/**
 * A response whose body is not read yet. Reading it to the end, leaving the loop or `destroy` closes the
 * connection.
 */
export interface HttpResponse {
  readonly status: number;
  readonly body: AsyncIterable<Buffer>;
  destroy(): void;
}

/** Limit in bytes for a response that is read whole. Logs may have 8 MiB of text, which JSON escapes can enlarge. */
const maxResponseBytes = 64 * 1024 * 1024;
/** Bytes buffered for a slow reader before the connection is paused. */
const maxBufferedBytes = 1024 * 1024;

/** Nothing accepted the connection and nothing was sent, so the work can safely be done in another way. */
export class UnreachableError extends SvcError<"unavailable"> {
  constructor(socketPath: string, cause: NodeJS.ErrnoException) {
    super("unavailable", unreachableMessage(socketPath, cause.code), { cause });
    this.name = "UnreachableError";
  }
}

function unreachableMessage(socketPath: string, code: string | undefined): string {
  switch (code) {
    case "ENOENT":
      return `there is no socket ${socketPath}`;
    case "EACCES":
    case "EPERM":
      return `this user may not open the socket ${socketPath}`;
    case "ENAMETOOLONG":
    case "EINVAL":
      return `the socket path ${socketPath} is longer than the 107 bytes that a socket can have`;
    default:
      return `no daemon responds on ${socketPath}`;
  }
}

/**
 * Sends a request and waits for the head of the response.
 * @throws SvcError `unavailable`, `canceled` or `deadline_exceeded`; reading the body throws these, too
 */
export function send(endpoint: Endpoint, request: HttpRequest): Promise<HttpResponse> {
  if (!("socketPath" in endpoint)) return endpoint.send(request);
  if (request.signal?.aborted === true) return Promise.reject(canceled());
  return new Exchange(endpoint, request).head;
}

/** Resolves when a stream can take more, or is closed. */
export function untilDrained(stream: NodeJS.WritableStream): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      stream.off("drain", end);
      stream.off("close", end);
      resolve();
    };
    stream.on("drain", end);
    stream.on("close", end);
  });
}

export function unreadableInput(error: unknown): SvcError {
  const message = `cannot read the input: ${error instanceof Error ? error.message : String(error)}`;
  return new SvcError("not_possible", message, { cause: error });
}

/** One request and its response, on its own connection. */
class Exchange implements HttpResponse {
  readonly head: Promise<HttpResponse>;
  readonly #socketPath: string;
  readonly #socket: Socket;
  readonly #parser = new ResponseParser();
  readonly #release: () => void;
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #isConnected = false;
  #failure: SvcError | undefined;
  /** Wakes the code that waits for the head or for more of the body. */
  #wake: () => void = () => undefined;

  constructor({ socketPath, headers }: SocketEndpoint, request: HttpRequest) {
    this.#socketPath = socketPath;
    this.#socket = connect({ path: socketPath });
    this.#socket.once("connect", () => (this.#isConnected = true));
    this.#socket.on("data", (bytes: Buffer) => this.#receive(bytes));
    this.#socket.once("end", () => this.#finish());
    this.#socket.once("error", (error) => this.#fail(this.#socketError(error)));
    this.#socket.once("close", () => this.#finish());
    this.#release = this.#endWith(request);
    this.head = this.#readHead();
    // In one write: a daemon that responds without reading the body may close before a second write, which
    // would fail the exchange.
    this.#socket.cork();
    this.#socket.write(requestHead(request, headers));
    const { body } = request;
    const isWhole = body === undefined || typeof body === "string" || body instanceof Uint8Array;
    if (isWhole && body !== undefined && body.length > 0) this.#socket.write(body);
    this.#socket.uncork();
    if (!isWhole) void this.#sendPieces(body);
  }

  get status(): number {
    return this.#parser.status ?? 0;
  }

  get body(): AsyncIterable<Buffer> {
    return this.#readBody();
  }

  destroy(): void {
    this.#release();
    this.#socket.destroy();
  }

  async #readHead(): Promise<HttpResponse> {
    while (this.#parser.status === undefined) await this.#nextEvent();
    return this;
  }

  /** Sends chunks (RFC 9112, section 7.1). Stops silently if the daemon has responded before it had all of them. */
  async #sendPieces(pieces: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const piece of pieces) {
        if (this.#socket.destroyed || this.#parser.status !== undefined) return;
        if (piece.length === 0) continue;
        this.#socket.cork();
        this.#socket.write(`${piece.length.toString(16)}\r\n`);
        this.#socket.write(piece);
        const hasRoom = this.#socket.write("\r\n");
        this.#socket.uncork();
        if (!hasRoom) await untilDrained(this.#socket);
      }
      this.#socket.write("0\r\n\r\n");
    } catch (error) {
      this.#fail(unreadableInput(error));
    }
  }

  async *#readBody(): AsyncGenerator<Buffer> {
    try {
      for (;;) {
        const bytes = this.#waiting.shift();
        if (bytes !== undefined) {
          this.#waitingBytes -= bytes.length;
          if (this.#waitingBytes <= maxBufferedBytes) this.#socket.resume();
          yield bytes;
        } else if (this.#parser.isDone) {
          return;
        } else {
          await this.#nextEvent();
        }
      }
    } finally {
      this.destroy();
    }
  }

  /** Waits for the next event of the connection. @throws the failure if the connection ended too early */
  async #nextEvent(): Promise<void> {
    if (this.#failure === undefined) {
      const { promise, resolve } = Promise.withResolvers<undefined>();
      this.#wake = () => resolve(undefined);
      await promise;
    }
    // Another event may have set the failure during the wait, which the type checker cannot know.
    const failure = this.#failure;
    if (failure !== undefined) throw failure;
  }

  #receive(bytes: Buffer): void {
    try {
      for (const piece of this.#parser.write(bytes)) {
        this.#waiting.push(piece);
        this.#waitingBytes += piece.length;
      }
    } catch (error) {
      this.#fail(error as SvcError);
      return;
    }
    if (this.#waitingBytes > maxBufferedBytes) this.#socket.pause();
    if (this.#parser.isDone) this.destroy();
    this.#wake();
  }

  #finish(): void {
    if (this.#parser.isDone) return;
    try {
      this.#parser.end();
      this.destroy();
      this.#wake();
    } catch (error) {
      this.#fail(error as SvcError);
    }
  }

  #fail(error: SvcError): void {
    this.#failure ??= error;
    this.destroy();
    this.#wake();
  }

  #socketError(error: NodeJS.ErrnoException): SvcError {
    if (!this.#isConnected) return new UnreachableError(this.#socketPath, error);
    const message = `the daemon on ${this.#socketPath} closed the connection`;
    return new SvcError("unavailable", message, { cause: error });
  }

  /** Ends the exchange when its signal aborts or its time is over. @returns a function that releases both */
  #endWith({ signal, timeoutMs }: HttpRequest): () => void {
    const abort = (): void => this.#fail(canceled());
    signal?.addEventListener("abort", abort, { once: true });
    const timer =
      timeoutMs === undefined ? undefined : setTimeout(() => this.#fail(tookTooLong(timeoutMs)), timeoutMs);
    return () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    };
  }
}

/** A line feed in a name or value would start another header. Callers pass none, and paths are percent-encoded. */
function requestHead(request: HttpRequest, common: Readonly<Record<string, string>>): string {
  const { method, path, headers, body } = request;
  const all: Record<string, string> = { host: "localhost", connection: "close", ...common, ...headers };
  if (typeof body === "string" || body instanceof Uint8Array)
    all["content-length"] = String(Buffer.byteLength(body));
  else if (body !== undefined) all["transfer-encoding"] = "chunked";
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** @throws SvcError if the connection breaks or the response is longer than 64 MiB */
export async function readAll(answer: HttpResponse): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of answer.body) {
    length += piece.length;
    if (length > maxResponseBytes) {
      throw new SvcError("too_many", "the daemon's response is longer than 64 MiB");
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces, length);
}

export function tookTooLong(timeoutMs: number): SvcError<"deadline_exceeded"> {
  const message = `the daemon took longer than ${timeoutMs / 1000} s; give it more time with --timeout`;
  return new SvcError("deadline_exceeded", message);
}

export function canceled(): SvcError<"canceled"> {
  return new SvcError("canceled", "interrupted");
}
