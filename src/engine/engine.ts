/** All access to the container engine goes through this module. */
import type { Socket } from "node:net";
import type Dockerode from "dockerode";
import { SvcError } from "../errors.ts";
import { Limiter } from "../lib/limiter.ts";
import { rootShare, shareOwner } from "../lib/share-owner.ts";
import { negotiateApiVersion } from "./api-version.ts";
import { engineError, isUnreachable } from "./engine-errors.ts";

export interface EngineCallOptions {
  /** Maximum time, waiting for a slot included, in milliseconds. */
  timeoutMs?: number;
  /** Cancels the call; the error is then the signal's reason. */
  signal?: AbortSignal | undefined;
}

/**
 * Something other than the engine that work waits for: the health check of a starting app, a registry, the steps of a build,
 * a stopping app, or the engine's interval between two measurements.
 * Such work uses none of the slots that users share.
 */
export type EngineWait = "start" | "pull" | "build" | "stop" | "measurement";

export interface OperationOptions extends EngineCallOptions {
  /** Absent: no limit but `signal`. */
  timeoutMs?: number;
  waitsFor?: EngineWait;
  /** Called with each connection to the engine that the work opens. */
  onSocket?: (socket: Socket) => void;
}

/** Work with a client of the engine; all its requests end with `signal`, whether or not the work passes it on. */
export type EngineWork<T> = (docker: Dockerode, signal: AbortSignal) => Promise<T>;

/**
 * Every request to the engine is one of three kinds, each with its own limit, so that slow work never delays short calls. Users share
 * the slots by the user that svc works for ({@link shareOwner}); root has a reserve. `what` completes the sentence "the container
 * engine could not", such as `list containers`.
 *
 * All three throw SvcError: `unavailable` when the engine is unreachable, hangs or restarts; `not_found` and `already_exists` as the
 * engine reports them; `invalid_argument` and `failed_precondition` with the engine's message when it rejects the request;
 * `resource_exhausted` when its disk is full or too many requests of the user wait.
 */
export interface DockerEngine extends AsyncDisposable {
  /** Path of the engine's socket. */
  readonly socket: string;
  /** Short calls: 16 at a time, 4 of them reserved for root, and 8 per user. Timeout 10 s by default. */
  call<T>(what: string, work: EngineWork<T>, options?: EngineCallOptions): Promise<T>;
  /**
   * Long work, such as creating a container: 32 at a time, 8 of them reserved for root, and 8 per user. Work that
   * `waitsFor` something other than the engine counts only for its own user.
   */
  operate<T>(what: string, work: EngineWork<T>, options: OperationOptions): Promise<T>;
  /**
   * Opens a stream, at most 1,024 per user. It must open within `timeoutMs`, 10 s by default; afterwards only
   * `signal` or its disposal ends it.
   */
  open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options?: EngineCallOptions,
  ): Promise<EngineStream<T>>;
  /**
   * Checks that the engine responds, outside the limits: a user's full queue must not look like an engine that hangs.
   */
  ping(options?: EngineCallOptions): Promise<void>;
  /** The negotiated API version, such as `1.41`. */
  apiVersion(signal?: AbortSignal): Promise<string>;
}

/** An open stream; dispose of it when it is no longer read. */
export interface EngineStream<T extends NodeJS.ReadableStream> extends Disposable {
  /** The stream itself, for writing. */
  readonly stream: T;
  /** The received data. @throws SvcError `unavailable` when the connection is lost; the signal's reason */
  readonly chunks: AsyncIterable<Buffer>;
}

export interface DockerEngineOptions {
  /** Path of the engine's socket. */
  socket: string;
  /** Timeout of short calls, in milliseconds. */
  timeoutMs?: number;
}

const defaultTimeoutMs = 10_000;
const maxWaiting = 1_000;

/** A limit with a reserve for root. */
function limiter(
  what: string,
  bounds: { total: number; perKey: number; reserved: number; maxWaiting: number },
) {
  return new Limiter<number>({
    ...bounds,
    isReserved: (uid) => uid === rootShare,
    tooMany: ({ running, waiting }) =>
      new SvcError(
        "too_many",
        `${running} ${what} of yours use the container engine and ${waiting} wait (limit ${bounds.maxWaiting}); try again in a moment`,
      ),
  });
}

/** Waiting uses no slots of other users, so there is no total limit: each user has `perKey`, root `reserved` more. */
const ownWork = { total: Number.POSITIVE_INFINITY, perKey: 64, reserved: 192, maxWaiting };

/** Loads and opens nothing before the first call. */
export function createDockerEngine(options: DockerEngineOptions): DockerEngine {
  return new SocketEngine(options);
}

class SocketEngine implements DockerEngine {
  readonly socket: string;
  readonly #timeoutMs: number;
  readonly #disposed = new AbortController();
  readonly #shortCalls = limiter("calls", { total: 16, perKey: 8, reserved: 4, maxWaiting });
  readonly #operations = limiter("operations", { total: 32, perKey: 8, reserved: 8, maxWaiting });
  readonly #waiting: Readonly<Record<EngineWait, Limiter<number>>> = {
    // Each is a compose process.
    start: limiter("starts", { ...ownWork, perKey: 16, reserved: 48 }),
    pull: limiter("pulls", ownWork),
    build: limiter("builds", ownWork),
    // A user may stop all their containers at once.
    stop: limiter("stops", { ...ownWork, perKey: 1_024, reserved: 3_072 }),
    // All users who wait for a measurement share it, on root's share.
    measurement: limiter("measurements", { total: 32, perKey: 32, reserved: 0, maxWaiting }),
  };
  readonly #streams = limiter("streams", { total: 4_096, perKey: 1_024, reserved: 1_024, maxWaiting: 0 });
  #version: Promise<string> | undefined;

  constructor({ socket, timeoutMs = defaultTimeoutMs }: DockerEngineOptions) {
    this.socket = socket;
    this.#timeoutMs = timeoutMs;
  }

  async call<T>(what: string, work: EngineWork<T>, options: EngineCallOptions = {}): Promise<T> {
    return this.#limited(this.#shortCalls, what, work, { timeoutMs: this.#timeoutMs, ...options });
  }

  async operate<T>(what: string, work: EngineWork<T>, options: OperationOptions): Promise<T> {
    const { waitsFor } = options;
    const limiter = waitsFor === undefined ? this.#operations : this.#waiting[waitsFor];
    return this.#limited(limiter, what, work, options);
  }

  async #limited<T>(
    limiter: Limiter<number>,
    what: string,
    work: EngineWork<T>,
    { timeoutMs, signal, onSocket }: OperationOptions,
  ): Promise<T> {
    using scope = this.#scope(what, timeoutMs, signal);
    using _slot = await scope.bounded(() => limiter.acquire(shareOwner(), scope.signal));
    return await scope.bounded(async () => work(await this.#client(scope.signal, onSocket), scope.signal));
  }

  async open<T extends NodeJS.ReadableStream>(
    what: string,
    work: EngineWork<T>,
    options: EngineCallOptions = {},
  ): Promise<EngineStream<T>> {
    using resources = new DisposableStack();
    const scope = resources.use(this.#scope(what, options.timeoutMs ?? this.#timeoutMs, options.signal));
    resources.use(await scope.bounded(() => this.#streams.acquire(shareOwner(), scope.signal)));
    const stream = await scope.bounded(async () => work(await this.#client(scope.signal), scope.signal));
    scope.keepOpen();
    const owned = resources.move();
    return {
      stream,
      chunks: scope.read(stream),
      [Symbol.dispose]: () => {
        // The stream is no longer read, so its errors do not matter.
        stream.on("error", () => undefined);
        scope.end();
        owned.dispose();
      },
    };
  }

  async ping({ timeoutMs = this.#timeoutMs, signal }: EngineCallOptions = {}): Promise<void> {
    using scope = this.#scope("answer", timeoutMs, signal);
    await scope.bounded(async () => {
      await (await this.#client(scope.signal)).ping();
    });
  }

  async apiVersion(signal?: AbortSignal): Promise<string> {
    using scope = this.#scope("say its version", this.#timeoutMs, signal);
    return await scope.bounded(() => this.#negotiate());
  }

  #scope(what: string, timeoutMs: number | undefined, signal: AbortSignal | undefined): CallScope {
    return new CallScope({
      what,
      timeoutMs,
      signals: signal === undefined ? [this.#disposed.signal] : [this.#disposed.signal, signal],
      onError: (error) => {
        // After a restart, the engine may be another version.
        if (isUnreachable(error)) this.#version = undefined;
        return engineError(error, what, this.socket);
      },
    });
  }

  async #client(signal: AbortSignal, onSocket?: (socket: Socket) => void): Promise<Dockerode> {
    // Load these lazily: a daemon without an engine must not spend the time and memory.
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
  timeoutMs: number | undefined;
  signals: readonly AbortSignal[];
  onError: (error: unknown) => SvcError;
}

/** One call from its first wait to its end: its deadline, the caller's signal, and its error message. */
class CallScope implements Disposable {
  readonly #ended = new AbortController();
  readonly #sources: readonly AbortSignal[];
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #onError: (error: unknown) => SvcError;
  readonly #onAbort = (event: Event): void => this.#ended.abort((event.target as AbortSignal).reason);

  constructor({ what, timeoutMs, signals, onError }: CallScopeOptions) {
    this.#sources = signals;
    this.#onError = onError;
    if (timeoutMs !== undefined) {
      const message = `the container engine did not ${what} within ${timeoutMs / 1000} s; it may hang or be restarting`;
      this.#timer = setTimeout(() => this.#ended.abort(new SvcError("unavailable", message)), timeoutMs);
    }
    for (const signal of signals) {
      if (signal.aborted) this.#ended.abort(signal.reason);
      signal.addEventListener("abort", this.#onAbort, { once: true });
    }
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Runs `work`, but at most until the call ends, even if `work` ignores the signal. */
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

  /** The stream's chunks; errors are those of the call. */
  async *read(stream: NodeJS.ReadableStream): AsyncGenerator<Buffer, void> {
    try {
      yield* stream as AsyncIterable<Buffer>;
    } catch (error) {
      if (this.signal.aborted) throw this.signal.reason;
      throw this.#onError(error);
    }
  }

  /** Removes the deadline. */
  keepOpen(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.#ended.abort(new SvcError("canceled", "the stream is no longer read"));
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    for (const signal of this.#sources) signal.removeEventListener("abort", this.#onAbort);
  }
}
