/** One followed stream of the engine's events, opened again whenever it ends. */
import { setTimeout as wait } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { noLog, type Log } from "../lib/log.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import type { DockerEngine } from "./engine.ts";
import { readEvents, type EngineEvent } from "./event-stream.ts";

/** Whoever listens; called one after another, must not throw. */
export interface EngineListener {
  /** In the engine's order. */
  onEvent?(event: EngineEvent): void;
  /** Events come from now on; what happened before, since the last `onDisconnect`, nobody will tell. */
  onConnect?(generation: number): void;
  onDisconnect?(error: SvcError): void;
  /** It is there after all, and has been all the time, while somebody was told that it does not answer. */
  onLateAnswer?(): void;
}

export interface EngineEventsOptions {
  engine: DockerEngine;
  /** Called when the engine goes and when it comes back. */
  log?: Pick<Log, "info" | "warn">;
  /** How often a silent engine is asked whether it is still there, in milliseconds. */
  heartbeatMs?: number;
  /** Within which it must answer that, and open the stream, in milliseconds. */
  answerMs?: number;
}

/** Whoever asks waits no longer, in all, for an answer that an engine under load may still give. */
const patienceMs = 2_500;
/** Likewise, of one that has been silent until it was given up: when it is back, it answers at once. */
const silentPatienceMs = 1_000;
const minBackoffMs = 100;
const maxBackoffMs = 2_000;

/** Follows from `start()` on: one connection, a heartbeat that finds an engine that hangs, and tries again for ever. */
export class EngineEvents implements AsyncDisposable {
  readonly #engine: DockerEngine;
  readonly #log: Pick<Log, "info" | "warn">;
  readonly #heartbeatMs: number;
  readonly #answerMs: number;
  readonly #listeners = new Set<EngineListener>();
  readonly #disposed = new AbortController();
  #following: Promise<void> | undefined;
  #retryNow = new AbortController();
  /** Ends the connection. */
  #lost = new AbortController();
  #error: SvcError | undefined = new SvcError("unavailable", "the container engine was not asked yet");
  #generation = 0;
  #verifiedAtMs = -Infinity;
  /** Since when it owes an answer; `undefined`: it does not. */
  #askedAtMs: number | undefined;
  /** It was given up since it did not answer, and has not come back. */
  #isSilent = false;
  /** Somebody did not wait for what it owes. */
  #wasGivenUp = false;
  #verifying: Promise<void> | undefined;
  #attempt = Promise.withResolvers<undefined>();

  constructor({ engine, log = noLog, heartbeatMs = 2_000, answerMs = 5_000 }: EngineEventsOptions) {
    this.#engine = engine;
    this.#log = log;
    this.#heartbeatMs = heartbeatMs;
    this.#answerMs = answerMs;
  }

  /** Grows with every new connection: what was known in an earlier one may have changed unseen. */
  get generation(): number {
    return this.#generation;
  }

  /** Why the engine is not followed just now; `undefined` while it is. */
  get error(): SvcError | undefined {
    return this.#error;
  }

  /** How long ago the engine last showed that it is there, in milliseconds. */
  get silentMs(): number {
    return performance.now() - this.#verifiedAtMs;
  }

  /** Whether somebody waited in vain for it to answer, and it has not done so since. */
  get isHung(): boolean {
    return this.#isSilent || this.#wasGivenUp;
  }

  /** Begins to follow; more than one call changes nothing. */
  start(): void {
    this.#following ??= this.#follow();
  }

  listen(listener: EngineListener): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  /** Calls back at the end of a container, until it is disposed of. */
  onDeath(containerId: string, callback: () => void): Disposable {
    return this.listen({
      onEvent: ({ type, action, id }) => {
        if (type === "container" && action === "die" && id === containerId) callback();
      },
    });
  }

  /**
   * Resolves when the engine has shown that it is there, after this call. An engine that is away is tried at once.
   * @param waitedMs how long the caller has waited for another answer of it before
   * @throws SvcError `unavailable`, within 2.5 s, what it waited before among them; at once while it owes somebody an answer
   *   for longer than that
   */
  async verify(waitedMs = 0): Promise<void> {
    this.start();
    const patience = new AbortController();
    const mostMs = this.#isSilent ? silentPatienceMs : patienceMs - waitedMs;
    const leftMs = mostMs - (performance.now() - (this.#askedAtMs ?? Infinity));
    const giveUp = (): void => {
      this.#wasGivenUp = true;
      patience.abort(silent());
    };
    const timer = setTimeout(giveUp, Math.min(Math.max(leftMs, 0), mostMs));
    try {
      await unlessAborted(this.#verified(), patience.signal);
    } finally {
      clearTimeout(timer);
    }
  }

  async #verified(): Promise<void> {
    if (this.#error === undefined) {
      this.#verifying ??= this.#ping().finally(() => (this.#verifying = undefined));
      await this.#verifying;
    } else {
      this.#retryNow.abort();
      await this.#attempt.promise;
    }
    // Both may have changed it.
    const error = this.#error;
    if (error !== undefined) throw error;
  }

  async #ping(): Promise<void> {
    const generation = this.#generation;
    this.#askedAtMs = performance.now();
    try {
      await this.#engine.call("answer", (docker) => docker.ping(), {
        timeoutMs: this.#answerMs,
        signal: this.#disposed.signal,
      });
      this.#verifiedAtMs = performance.now();
      if (generation === this.#generation) this.#answered();
    } catch (error) {
      if (generation === this.#generation) this.#lose(error as SvcError);
    } finally {
      this.#askedAtMs = undefined;
    }
  }

  #answered(): void {
    if (!this.#wasGivenUp) return;
    this.#wasGivenUp = false;
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
      // Whoever waits for an attempt gets its result; the next one is another.
      this.#attempt.resolve(undefined);
      this.#attempt = Promise.withResolvers();
      const jittered = backoffMs * (0.75 + Math.random() / 4);
      await wait(jittered, undefined, { signal: AbortSignal.any([signal, this.#retryNow.signal]) }).catch(
        () => undefined,
      );
    }
  }

  /** From one connection to its end; says why it ended through `#error`. */
  async #connectOnce(): Promise<void> {
    const lost = new AbortController();
    const signal = AbortSignal.any([this.#disposed.signal, lost.signal]);
    this.#askedAtMs = performance.now();
    try {
      using opened = await this.#engine.open("tell its events", (docker) => docker.getEvents({}), {
        timeoutMs: this.#answerMs,
        signal,
      });
      this.#win(lost);
      using _heartbeat = this.#beat();
      for await (const event of readEvents(opened.chunks)) {
        this.#verifiedAtMs = performance.now();
        for (const listener of this.#listeners) listener.onEvent?.(event);
      }
      this.#lose(new SvcError("unavailable", "the container engine ended; it may be restarting"));
    } catch (error) {
      this.#lose(
        error instanceof SvcError
          ? (error as SvcError)
          : new SvcError("unavailable", "the container engine went away", { cause: error }),
      );
    }
  }

  #win(lost: AbortController): void {
    this.#lost = lost;
    this.#error = undefined;
    this.#isSilent = false;
    this.#askedAtMs = undefined;
    this.#wasGivenUp = false;
    this.#generation++;
    this.#verifiedAtMs = performance.now();
    this.#log.info(
      { socket: this.#engine.socket, generation: this.#generation },
      "the container engine is there",
    );
    for (const listener of this.#listeners) listener.onConnect?.(this.#generation);
    this.#attempt.resolve(undefined);
    this.#attempt = Promise.withResolvers();
  }

  #lose(error: SvcError): void {
    const wasThere = this.#error === undefined;
    this.#error = error;
    this.#isSilent ||= performance.now() - (this.#askedAtMs ?? Infinity) >= patienceMs;
    this.#askedAtMs = undefined;
    this.#verifiedAtMs = -Infinity;
    this.#lost.abort(error);
    if (!wasThere || this.#disposed.signal.aborted) return;
    this.#log.warn({ socket: this.#engine.socket, why: error.message }, "the container engine is away");
    for (const listener of this.#listeners) listener.onDisconnect?.(error);
  }

  #beat(): Disposable {
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
  const message = `the container engine does not answer for ${patienceMs / 1000} s; it may hang or be restarting`;
  return new SvcError("unavailable", message);
}
