/** The daemon's only way to the container engine. */
import type { Socket } from "node:net";
import type Dockerode from "dockerode";
import { SvcError } from "../errors.ts";
import { negotiateApiVersion } from "./api-version.ts";
import { engineError, isUnreachable } from "./engine-errors.ts";
import { Lane, Lanes } from "./lane.ts";

export interface EngineCallOptions {
  /** The most that it may take, waiting for a turn included, in milliseconds. */
  timeoutMs?: number;
  /** Ends it early; the error is then the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface LaneOptions extends EngineCallOptions {
  /**
   * Whose it is, where it takes as long as somebody likes, such as `the stop of app "web"`: each has places of their own.
   */
  of?: string | undefined;
}

export interface OperationOptions extends LaneOptions {
  timeoutMs: number;
  /** Told of each connection that the work makes to the engine. */
  onSocket?: (socket: Socket) => void;
}

/** What the engine is asked: a client whose every request ends with `signal`, whether or not it is passed on. */
export type EngineWork<T> = (docker: Dockerode, signal: AbortSignal) => Promise<T>;

/**
 * Everything that svc asks of the engine goes through one of three doors, each with a bound on how much goes at once,
 * so that slow work never keeps short calls waiting.
 *
 * All three throw SvcError: `unavailable` when the engine is away, hangs or restarts; `not_found` and `already_exists` as
 * the engine says; `invalid_argument` and `failed_precondition` with the engine's own words when it refuses;
 * `resource_exhausted` when its disk is full or too much waits already. `what` is what is done, in words that go on after
 * "the container engine could not", such as `list containers`.
 */
export interface DockerEngine extends AsyncDisposable {
  /** Path of the engine's socket. */
  readonly socket: string;
  /** Short calls: 16 at a time, each answered within 10 s by default. */
  call<T>(what: string, work: EngineWork<T>, options?: EngineCallOptions): Promise<T>;
  /**
   * Work that takes its time, such as a build: 32 at a time; it says its deadline. What waits for somebody else than the engine, such
   * as for an app that is stopped or a registry: 64 of each at a time, as it keeps nobody else from theirs.
   */
  operate<T>(what: string, work: EngineWork<T>, options: OperationOptions): Promise<T>;
  /**
   * Opens something that is read for as long as it lasts, 256 of each at a time: within `timeoutMs` it must be open, 10 s by default;
   * from then on only `signal` or its disposal ends it.
   */
  open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options?: LaneOptions,
  ): Promise<EngineStream<T>>;
  /** The API version agreed on, such as `1.41`. */
  apiVersion(signal?: AbortSignal): Promise<string>;
}

/** An open stream; dispose of it when it is no longer read. */
export interface EngineStream<T extends NodeJS.ReadableStream> extends Disposable {
  /** The stream itself, for those that write to it too. */
  readonly stream: T;
  /** What comes, until its end. @throws SvcError `unavailable` when the engine goes away; the signal's reason */
  readonly chunks: AsyncIterable<Buffer>;
}

export interface DockerEngineOptions {
  /** Path of the engine's socket. */
  socket: string;
  /** For short calls, in milliseconds. */
  timeoutMs?: number;
}

const defaultTimeoutMs = 10_000;
const shortCalls = { running: 16, waiting: 1_000 };
const operations = { running: 32, waiting: 1_000 };
/** Of each who is named. */
const ownOperations = { running: 64, waiting: 1_000 };
const streams = { running: 256, waiting: 0 };

/** Nothing is loaded or opened before the first call. */
export function createDockerEngine(options: DockerEngineOptions): DockerEngine {
  return new SocketEngine(options);
}

class SocketEngine implements DockerEngine {
  readonly socket: string;
  readonly #timeoutMs: number;
  readonly #disposed = new AbortController();
  readonly #shortCalls = new Lane(shortCalls);
  readonly #operations = new Lanes(operations, ownOperations);
  readonly #streams = new Lanes(streams, streams);
  #version: Promise<string> | undefined;

  constructor({ socket, timeoutMs = defaultTimeoutMs }: DockerEngineOptions) {
    this.socket = socket;
    this.#timeoutMs = timeoutMs;
  }

  async call<T>(what: string, work: EngineWork<T>, options: EngineCallOptions = {}): Promise<T> {
    const enter = (signal: AbortSignal): Promise<Disposable> => this.#shortCalls.enter(signal);
    return this.#inLane(enter, what, work, { timeoutMs: this.#timeoutMs, ...options });
  }

  async operate<T>(what: string, work: EngineWork<T>, options: OperationOptions): Promise<T> {
    return this.#inLane((signal) => this.#operations.enter(options.of, signal), what, work, options);
  }

  async #inLane<T>(
    enter: (signal: AbortSignal) => Promise<Disposable>,
    what: string,
    work: EngineWork<T>,
    { timeoutMs, signal, onSocket }: OperationOptions,
  ): Promise<T> {
    using scope = this.#scope(what, timeoutMs, signal);
    using _turn = await scope.bounded(() => enter(scope.signal));
    return await scope.bounded(async () => work(await this.#client(scope.signal, onSocket), scope.signal));
  }

  async open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options: LaneOptions = {},
  ): Promise<EngineStream<T>> {
    using resources = new DisposableStack();
    const scope = resources.use(this.#scope(what, options.timeoutMs ?? this.#timeoutMs, options.signal));
    resources.use(await scope.bounded(() => this.#streams.enter(options.of, scope.signal)));
    const stream = await scope.bounded(async () => work(await this.#client(scope.signal), scope.signal));
    scope.keepOpen();
    const owned = resources.move();
    return {
      stream,
      chunks: scope.read(stream),
      [Symbol.dispose]: () => {
        // Nobody reads it any more: how it ends matters to nobody.
        stream.on("error", () => undefined);
        scope.end();
        owned.dispose();
      },
    };
  }

  async apiVersion(signal?: AbortSignal): Promise<string> {
    using scope = this.#scope("say its version", this.#timeoutMs, signal);
    return await scope.bounded(() => this.#negotiate());
  }

  #scope(what: string, timeoutMs: number, signal: AbortSignal | undefined): CallScope {
    return new CallScope({
      what,
      timeoutMs,
      signals: signal === undefined ? [this.#disposed.signal] : [this.#disposed.signal, signal],
      onError: (error) => {
        // What comes back may be another version.
        if (isUnreachable(error)) this.#version = undefined;
        return engineError(error, what, this.socket);
      },
    });
  }

  async #client(signal: AbortSignal, onSocket?: (socket: Socket) => void): Promise<Dockerode> {
    // Takes time and memory, which a daemon without an engine must not pay.
    const [{ default: Docker }, { ScopedModem }, version] = await Promise.all([
      import("dockerode"),
      import("./scoped-modem.ts"),
      this.#negotiate(),
    ]);
    return new Docker({
      modem: new ScopedModem({ socketPath: this.socket, version, signal, onSocket }),
    } as object);
  }

  #negotiate(): Promise<string> {
    const version = (this.#version ??= negotiateApiVersion(this.socket, this.#timeoutMs));
    version.catch(() => {
      if (this.#version === version) this.#version = undefined;
    });
    return version;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort(new SvcError("unavailable", "the daemon is stopping"));
    return Promise.resolve();
  }
}

interface CallScopeOptions {
  what: string;
  timeoutMs: number;
  signals: readonly AbortSignal[];
  onError: (error: unknown) => SvcError;
}

/** One call from its first wait to its end: its deadline, its caller's signal, and what its failure is called. */
class CallScope implements Disposable {
  readonly #ended = new AbortController();
  readonly #sources: readonly AbortSignal[];
  readonly #timer: NodeJS.Timeout;
  readonly #onError: (error: unknown) => SvcError;
  readonly #onAbort = (event: Event): void => this.#ended.abort((event.target as AbortSignal).reason);

  constructor({ what, timeoutMs, signals, onError }: CallScopeOptions) {
    this.#sources = signals;
    this.#onError = onError;
    this.#timer = setTimeout(() => {
      this.#ended.abort(
        new SvcError(
          "unavailable",
          `the container engine did not ${what} within ${timeoutMs / 1000} s; it may hang or be restarting`,
        ),
      );
    }, timeoutMs);
    for (const signal of signals) {
      if (signal.aborted) this.#ended.abort(signal.reason);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Does `work` until the end of the call, whatever `work` itself makes of it. */
  async bounded<T>(work: () => Promise<T>): Promise<T> {
    const { signal } = this;
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const onEnd = (): void => reject(signal.reason as Error);
    try {
      signal.throwIfAborted();
      signal.addEventListener("abort", onEnd, { once: true });
      return await Promise.race([work(), ended]);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw this.#onError(error);
    } finally {
      signal.removeEventListener("abort", onEnd);
    }
  }

  /** The stream's chunks; what ends it is told as the end of a call is. */
  async *read(stream: NodeJS.ReadableStream): AsyncGenerator<Buffer, void> {
    try {
      yield* stream as AsyncIterable<Buffer>;
    } catch (error) {
      if (this.signal.aborted) throw this.signal.reason;
      throw this.#onError(error);
    }
  }

  /** No deadline from now on. */
  keepOpen(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.#ended.abort(new SvcError("canceled", "nobody reads it any more"));
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    for (const signal of this.#sources) signal.removeEventListener("abort", this.#onAbort);
  }
}
