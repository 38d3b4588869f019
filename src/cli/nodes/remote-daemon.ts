/** A remote daemon, over one HTTP/2 connection for all calls of a command. */
import {
  connect as connectHttp2,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type OutgoingHttpHeaders,
} from "node:http2";
import { PassThrough, pipeline } from "node:stream";
import { SvcError } from "../../errors.ts";
import {
  canceled,
  untilDrained,
  tookTooLong,
  unreadableInput,
  type RemoteEndpoint,
  type HttpResponse,
  type HttpRequest,
} from "../client/http.ts";
import { connectTimeoutMs, type RemoteStream } from "./remote-stream.ts";

export interface RemoteDaemonOptions {
  /** Its name in messages. */
  readonly name: string;
  /** Host, and port unless it is the scheme's default. */
  readonly authority: string;
  readonly scheme: "http" | "https";
  /** Sent with every request, such as a token. */
  readonly headers: Readonly<Record<string, string>>;
  readonly open: () => Promise<RemoteStream> | RemoteStream;
  /** Milliseconds until the daemon's first bytes. Default: {@link connectTimeoutMs}. */
  readonly greetingTimeoutMs?: number;
}

/** HTTP/2 window in bytes: enough to fill a long-distance connection. */
const windowBytes = 4 * 1024 * 1024;

interface Line {
  readonly session: ClientHttp2Session;
  readonly stream: RemoteStream;
}

export class RemoteDaemon implements RemoteEndpoint {
  readonly headers: Readonly<Record<string, string>>;
  readonly #options: RemoteDaemonOptions;
  #line: Promise<Line> | undefined;
  /** Set before the daemon's first bytes arrive. */
  #latest: Line | undefined;

  constructor(options: RemoteDaemonOptions) {
    this.#options = options;
    this.headers = options.headers;
  }

  async send(request: HttpRequest): Promise<HttpResponse> {
    const { signal, timeoutMs, body } = request;
    if (signal?.aborted === true) throw canceled();
    const limits = new CallLimits(signal, timeoutMs);
    try {
      const { session, stream } = await limits.bound(this.#connected());
      const isWhole = typeof body === "string" || body instanceof Uint8Array;
      const headers = {
        ":method": request.method,
        ":path": request.path,
        ...this.headers,
        ...request.headers,
        ...(isWhole ? { "content-length": String(Buffer.byteLength(body)) } : {}),
      };
      const call = this.#request(session, headers, body === undefined);
      return await new RemoteExchange(call, { body, limits, name: this.#options.name, stream }).head();
    } catch (error) {
      limits[Symbol.dispose]();
      throw error;
    }
  }

  async request(headers: OutgoingHttpHeaders): Promise<ClientHttp2Stream> {
    const { session } = await this.#connected();
    return this.#request(session, headers, false);
  }

  #request(session: ClientHttp2Session, headers: OutgoingHttpHeaders, endStream: boolean): ClientHttp2Stream {
    const { authority, scheme } = this.#options;
    return session.request({ ...headers, ":authority": authority, ":scheme": scheme }, { endStream });
  }

  #connected(): Promise<Line> {
    return (this.#line ??= this.#connect().catch((error: unknown) => {
      this.#line = undefined;
      throw error;
    }));
  }

  async #connect(): Promise<Line> {
    const { open, authority, name, greetingTimeoutMs = connectTimeoutMs } = this.#options;
    const stream = await open();
    // Node only uses the scheme to open connections, which happens elsewhere here.
    const session = connectHttp2(`http://${authority}`, {
      createConnection: () => stream.duplex,
      settings: { enablePush: false, initialWindowSize: windowBytes },
    });
    this.#latest = { session, stream };
    let problem: Error | undefined;
    session.on("error", (error: Error) => (problem ??= error));
    stream.duplex.on("error", (error: Error) => (problem ??= error));
    const { promise: over, reject: giveUp } = Promise.withResolvers<never>();
    const timer = setTimeout(
      () => giveUp(new SvcError("unavailable", silence(name, greetingTimeoutMs))),
      greetingTimeoutMs,
    );
    const greeted = new Promise<boolean>((resolve) => {
      session.once("remoteSettings", () => resolve(true));
      session.once("close", () => resolve(false));
    });
    try {
      if (!(await Promise.race([greeted, over]))) throw await stream.failure(problem);
    } catch (error) {
      session.destroy();
      await stream[Symbol.asyncDispose]();
      throw error;
    } finally {
      clearTimeout(timer);
    }
    session.setLocalWindowSize(windowBytes);
    // Daemons close idle connections: the next call opens another.
    session.once("close", () => (this.#line = undefined));
    session.once("goaway", () => (this.#line = undefined));
    return { session, stream };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The session first: Node's adapter fails over bytes that it can no longer write.
    this.#latest?.session.destroy();
    await this.#latest?.stream[Symbol.asyncDispose]();
    await this.#line?.catch(() => undefined);
  }
}

function silence(name: string, timeoutMs: number): string {
  return `${name} did not respond within ${timeoutMs / 1000} s`;
}

/** Ends a call before its response is complete: when its signal aborts or its time is over. */
class CallLimits implements Disposable {
  readonly #over = Promise.withResolvers<never>();
  readonly #signal: AbortSignal | undefined;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #abort = (): void => this.#end(canceled());
  #failure: SvcError | undefined;
  onEnd: (error: SvcError) => void = () => undefined;

  constructor(signal: AbortSignal | undefined, timeoutMs: number | undefined) {
    this.#signal = signal;
    this.#over.promise.catch(() => undefined);
    signal?.addEventListener("abort", this.#abort, { once: true });
    if (timeoutMs !== undefined) this.#timer = setTimeout(() => this.#end(tookTooLong(timeoutMs)), timeoutMs);
  }

  get failure(): SvcError | undefined {
    return this.#failure;
  }

  bound<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#over.promise]);
  }

  #end(error: SvcError): void {
    this.#failure ??= error;
    this.#over.reject(error);
    this.onEnd(error);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#abort);
  }
}

interface ExchangeParts {
  readonly body: HttpRequest["body"];
  readonly limits: CallLimits;
  readonly name: string;
  readonly stream: RemoteStream;
}

/** One request and its response. */
class RemoteExchange implements HttpResponse {
  readonly #call: ClientHttp2Stream;
  readonly #content = new PassThrough();
  readonly #parts: ExchangeParts;
  #status = 0;
  #failure: unknown;
  #isBroken = false;

  constructor(call: ClientHttp2Stream, parts: ExchangeParts) {
    this.#call = call;
    this.#parts = parts;
    parts.limits.onEnd = () => call.destroy();
    call.on("error", (error: unknown) => {
      this.#failure ??= error;
    });
    // Read from the beginning: Node discards unread data when a response is complete.
    pipeline(call, this.#content, (error: unknown) => {
      this.#failure ??= error;
    });
    // A canceled call ends like a complete one, except for this event and its code.
    call.once("aborted", () => (this.#isBroken = true));
    call.once("response", (headers) => (this.#status = headers[":status"] ?? 0));
    const { body } = parts;
    if (typeof body === "string" || body instanceof Uint8Array) call.end(body);
    else if (body !== undefined) void this.#sendPieces(body);
  }

  get status(): number {
    return this.#status;
  }

  async head(): Promise<HttpResponse> {
    await new Promise<void>((resolve) => {
      this.#call.once("response", () => resolve());
      this.#call.once("close", () => resolve());
    });
    if (this.#status === 0) throw await this.#problem();
    return this;
  }

  get body(): AsyncIterable<Buffer> {
    return this.#readBody();
  }

  destroy(): void {
    this.#parts.limits[Symbol.dispose]();
    this.#content.destroy();
    this.#call.destroy();
  }

  async *#readBody(): AsyncGenerator<Buffer> {
    try {
      try {
        for await (const bytes of this.#content as AsyncIterable<Buffer>) yield bytes;
      } catch (error) {
        this.#failure ??= error;
        this.#isBroken = true;
      }
      if (this.#isBroken || this.#call.rstCode !== 0 || this.#parts.limits.failure !== undefined)
        throw await this.#problem();
    } finally {
      this.destroy();
    }
  }

  /** Stops silently if the daemon has responded before it had all pieces. */
  async #sendPieces(pieces: AsyncIterable<Uint8Array>): Promise<void> {
    const call = this.#call;
    try {
      for await (const piece of pieces) {
        if (call.destroyed || this.#status !== 0) return;
        if (piece.length > 0 && !call.write(piece)) await untilDrained(call);
      }
      call.end();
    } catch (error) {
      this.#failure = unreadableInput(error);
      call.destroy();
    }
  }

  async #problem(): Promise<SvcError> {
    const { limits, stream, name } = this.#parts;
    if (limits.failure !== undefined) return limits.failure;
    if (this.#failure instanceof SvcError) return this.#failure;
    if (stream.duplex.destroyed) return stream.failure(this.#failure);
    return new SvcError("unavailable", `the response of ${name} ended early`, { cause: this.#failure });
  }
}
