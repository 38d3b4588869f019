/** Follows the engine's event stream and reopens it whenever it ends. */
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { noLog, type Log } from "../lib/log.ts";
import { onShareOf, rootShare } from "../lib/share-owner.ts";
import { unlessAborted } from "../lib/abort.ts";
import type { DockerEngine } from "./engine.ts";
import { readEvents, type EngineEvent } from "./event-stream.ts";

/** Methods are called one at a time and must not throw. */
export interface EngineListener {
  /** In the engine's order. */
  onEvent?(event: EngineEvent): void;
  /** Events arrive from now on; those since the last `onDisconnect` are lost. */
  onConnect?(generation: number): void;
  onDisconnect?(error: SvcError): void;
  /** The engine responded after callers had received the error that it does not respond. */
  onLateAnswer?(): void;
}

export interface EngineEventsOptions {
  engine: DockerEngine;
  /** Logs when the engine becomes unavailable and available. */
  log?: Pick<Log, "info" | "warn">;
  /** Interval of checks while no events arrive, in milliseconds. */
  heartbeatMs?: number;
  /** Timeout of each check and of opening the stream, in milliseconds. */
  answerMs?: number;
}

/** How long a caller waits, in all, for an engine under load. */
const patienceMs = 2_500;
/** The same for an engine that has already stopped responding: once it is back, it responds at once. */
const silentPatienceMs = 1_000;
const minBackoffMs = 100;
const maxBackoffMs = 2_000;

/** From `start()` on, keeps one connection, detects a hanging engine by heartbeats, and reconnects without limit. */
export class EngineEvents implements AsyncDisposable {
  readonly #engine: DockerEngine;
  readonly #log: Pick<Log, "info" | "warn">;
  readonly #heartbeatMs: number;
  readonly #answerMs: number;
  readonly #listeners = new Set<EngineListener>();
  readonly #disposed = new AbortController();
  #following: Promise<void> | undefined;
  #retryNow = new AbortController();
  /** Closes the connection. */
  #connectionLost = new AbortController();
  #error: SvcError | undefined = new SvcError("unavailable", "the container engine was not asked yet");
  #generation = 0;
  #verifiedAtMs = -Infinity;
  /** When the pending check was sent; `undefined` without one. */
  #askedAtMs: number | undefined;
  /** The engine was declared unavailable because it did not respond, and has not come back. */
  #isSilent = false;
  /** A caller gave up waiting for the pending check. */
  #hasFailed = false;
  #verifying: Promise<void> | undefined;
  #attempt = Promise.withResolvers<undefined>();

  constructor({ engine, log = noLog, heartbeatMs = 2_000, answerMs = 5_000 }: EngineEventsOptions) {
    this.#engine = engine;
    this.#log = log;
    this.#heartbeatMs = heartbeatMs;
    this.#answerMs = answerMs;
  }

  /** Increases with every connection: state known from an earlier one may be stale. */
  get generation(): number {
    return this.#generation;
  }

  /** Why the engine is not followed at the moment; `undefined` while it is. */
  get error(): SvcError | undefined {
    return this.#error;
  }

  /** Time since the engine last showed activity, in milliseconds. */
  get silentMs(): number {
    return performance.now() - this.#verifiedAtMs;
  }

  /** Whether a caller gave up waiting for the engine, and it has not responded since. */
  get isUnresponsive(): boolean {
    return this.#isSilent || this.#hasFailed;
  }

  /** Starts following; further calls have no effect. */
  start(): void {
    // The listeners work for all users, so not on the first caller's share.
    this.#following ??= onShareOf(rootShare, () => this.#follow());
  }

  listen(listener: EngineListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** Calls back when the container ends, until it is disposed of. */
  onDeath(containerId: string, callback: () => void): Disposable {
    return this.listen({
      onEvent: ({ type, action, id }) => {
        if (type === "container" && action === "die" && id === containerId) callback();
      },
    });
  }

  /**
   * Resolves when the engine has responded after this call. Reconnects at once to an unavailable engine.
   * @param waitedMs how long the caller has already waited for another response
   * @throws SvcError `unavailable` within 2.5 s including `waitedMs`; at once while a check has been pending for
   *   longer
   */
  async verify(waitedMs = 0): Promise<void> {
    this.start();
    const patience = new AbortController();
    const mostMs = this.#isSilent ? silentPatienceMs : patienceMs - waitedMs;
    const leftMs = mostMs - (performance.now() - (this.#askedAtMs ?? Infinity));
    const giveUp = (): void => {
      this.#hasFailed = true;
      patience.abort(silent());
    };
    const timer = setTimeout(giveUp, Math.min(Math.max(leftMs, 0), mostMs));
    try {
      await unlessAborted(this.#untilVerified(), patience.signal);
    } finally {
      clearTimeout(timer);
    }
  }

  async #untilVerified(): Promise<void> {
    if (this.#error === undefined) {
      this.#verifying ??= this.#ping().finally(() => (this.#verifying = undefined));
      await this.#verifying;
    } else {
      this.#retryNow.abort();
      await this.#attempt.promise;
    }
    // Each wait may have changed the error.
    const error = this.#error;
    if (error !== undefined) throw error;
  }

  async #ping(): Promise<void> {
    const generation = this.#generation;
    this.#askedAtMs = performance.now();
    try {
      await this.#engine.ping({ timeoutMs: this.#answerMs, signal: this.#disposed.signal });
      this.#verifiedAtMs = performance.now();
      if (generation === this.#generation) this.#reportLateAnswer();
    } catch (error) {
      if (generation === this.#generation) this.#disconnected(error as SvcError);
    } finally {
      this.#askedAtMs = undefined;
    }
  }

  #reportLateAnswer(): void {
    if (!this.#hasFailed) return;
    this.#hasFailed = false;
    for (const listener of this.#listeners) listener.onLateAnswer?.();
  }

  async #follow(): Promise<void> {
    const { signal } = this.#disposed;
    let backoffMs = minBackoffMs;
    while (!signal.aborted) {
      const before = this.#generation;
      await this.#connectOnce();
      backoffMs = this.#generation === before ? Math.min(backoffMs * 2, maxBackoffMs) : minBackoffMs;
      this.#retryNow = new AbortController();
      // Callers that wait for this attempt get its result; later ones get the next attempt's.
      this.#attempt.resolve(undefined);
      this.#attempt = Promise.withResolvers();
      const jittered = backoffMs * (0.75 + Math.random() / 4);
      await wait(jittered, undefined, { signal: AbortSignal.any([signal, this.#retryNow.signal]) }).catch(
        () => undefined,
      );
    }
  }

  /** Runs one connection until it ends; sets `#error` to the reason. */
  async #connectOnce(): Promise<void> {
    const lost = new AbortController();
    const signal = AbortSignal.any([this.#disposed.signal, lost.signal]);
    this.#askedAtMs = performance.now();
    try {
      using opened = await this.#engine.open("stream its events", (docker) => docker.getEvents({}), {
        timeoutMs: this.#answerMs,
        signal,
      });
      this.#connected(lost);
      using _heartbeat = this.#startHeartbeat();
      for await (const event of readEvents(opened.chunks)) {
        this.#verifiedAtMs = performance.now();
        for (const listener of this.#listeners) listener.onEvent?.(event);
      }
      this.#disconnected(
        new SvcError("unavailable", "the container engine closed the connection; it may be restarting"),
      );
    } catch (error) {
      this.#disconnected(
        error instanceof SvcError
          ? (error as SvcError)
          : new SvcError("unavailable", "the connection to the container engine was lost", { cause: error }),
      );
    }
  }

  #connected(lost: AbortController): void {
    this.#connectionLost = lost;
    this.#error = undefined;
    this.#isSilent = false;
    this.#askedAtMs = undefined;
    this.#hasFailed = false;
    this.#generation++;
    this.#verifiedAtMs = performance.now();
    this.#log.info(
      { socket: this.#engine.socket, generation: this.#generation },
      "the container engine is available",
    );
    for (const listener of this.#listeners) listener.onConnect?.(this.#generation);
    this.#attempt.resolve(undefined);
    this.#attempt = Promise.withResolvers();
  }

  #disconnected(error: SvcError): void {
    const wasThere = this.#error === undefined;
    this.#error = error;
    this.#isSilent ||= performance.now() - (this.#askedAtMs ?? Infinity) >= patienceMs;
    this.#askedAtMs = undefined;
    this.#verifiedAtMs = -Infinity;
    this.#connectionLost.abort(error);
    if (!wasThere || this.#disposed.signal.aborted) return;
    this.#log.warn(
      { socket: this.#engine.socket, why: error.message },
      "the container engine is unavailable",
    );
    for (const listener of this.#listeners) listener.onDisconnect?.(error);
  }

  #startHeartbeat(): Disposable {
    const timer = setInterval(() => {
      if (this.silentMs >= this.#heartbeatMs) this.verify().catch(() => undefined);
    }, this.#heartbeatMs).unref();
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#disposed.abort(new SvcError("unavailable", "the daemon is stopping"));
    this.#attempt.resolve(undefined);
    await this.#following;
  }
}

function silent(): SvcError {
  const message = `the container engine has not responded for ${patienceMs / 1000} s; it may hang or be restarting`;
  return new SvcError("unavailable", message);
}
