/** One running request to a helper: its streams, its deadline, its cancellation. */
import type { Readable } from "node:stream";
import { SvcError } from "../errors.ts";
import { ChunkInbox, ChunkOutbox } from "./helper/chunk-flow.mjs";
import type { Header } from "./helper/frames.mjs";
import { toSvcError } from "./helper-errors.ts";
import { type BufferPool, freeMemory } from "../lib/buffer-pool.ts";
import type { ArgsOf, ClaimOf, Op } from "./helper-protocol.ts";

/** Sends a request to the helper of a user. */
export type Ask = <O extends Op>(request: HelperRequest<O>) => Promise<HelperAnswer<O>>;

/** Milliseconds for a helper to stop cancelled work, including the 5 s between SIGTERM and SIGKILL of a command. */
export const cancelMs = 10_000;

export interface HelperRequest<O extends Op = Op> {
  op: O;
  args: ArgsOf<O>;
  /** For error messages: a path relative to its root, or a command. */
  subject: string;
  data?: Uint8Array;
  signal?: AbortSignal | undefined;
  timeoutMs: number;
  onEvent?: ((event: unknown) => void) | undefined;
  /** Streamed to the helper; destroyed if the request ends first. */
  input?: Readable | undefined;
  /** Whether the memory of the input's pieces has no other user. */
  ownsInput?: boolean;
  /** Receives the helper's output stream. */
  output?: ((chunk: Buffer) => Promise<void>) | undefined;
  /** Whether the memory of a chunk is unused once `output` has resolved. */
  returnsOutput?: boolean;
  /** The run to clean up after if the helper dies. */
  runId?: string;
}

export interface HelperAnswer<O extends Op = Op> {
  value: ClaimOf<O>;
  data: Buffer;
}

export interface RequestChannel {
  send: (header: Header, data?: Uint8Array, onWritten?: () => void) => void;
  /** Called if cancelled work does not end. */
  abandon: () => void;
  buffers: BufferPool;
}

export class PendingRequest {
  readonly #id: number;
  readonly #request: HelperRequest;
  readonly #channel: RequestChannel;
  readonly #answer = Promise.withResolvers<HelperAnswer>();
  readonly #canceled = Promise.withResolvers<never>();
  /** Aborted when the request is over: ends the streams, the timers and the listeners. */
  readonly #over = new AbortController();
  readonly #outbox: ChunkOutbox;
  readonly #inbox: ChunkInbox;
  #isCanceled = false;
  #isAnswered = false;

  constructor(id: number, request: HelperRequest, channel: RequestChannel) {
    this.#id = id;
    this.#request = request;
    this.#channel = channel;
    this.#outbox = new ChunkOutbox((chunk) => {
      channel.send(
        { id, chunk: true },
        chunk,
        request.ownsInput === true ? () => freeMemory(chunk) : undefined,
      );
    }, this.#over.signal);
    this.#inbox = new ChunkInbox((bytes) => channel.send({ id, ack: bytes }), this.#over.signal);
    // `run()` handles both rejections, but may be waiting for the other one.
    this.#answer.promise.catch(() => undefined);
    this.#canceled.promise.catch(() => undefined);
  }

  get #returnsOutput(): boolean {
    return this.#request.returnsOutput === true;
  }

  get runId(): string | undefined {
    return this.#request.runId;
  }

  /**
   * Sends the request and waits for its end. A cancelled request ends only when the helper reports it, so that no
   * clean-up runs beside unfinished work.
   */
  async run(): Promise<HelperAnswer> {
    const { op, args, data, input, signal, timeoutMs, subject } = this.#request;
    const onAbort = () => this.cancel(canceledBy(signal, subject));
    const deadline = setTimeout(() => {
      const message = `${subject} took longer than ${timeoutMs} ms`;
      this.cancel(new SvcError("deadline_exceeded", message));
    }, timeoutMs);
    try {
      if (signal?.aborted) throw canceledBy(signal, subject);
      signal?.addEventListener("abort", onAbort);
      this.#channel.send({ id: this.#id, op, args }, data);
      void this.#sendInput();
      const outputTaken = this.#takeOutput();
      // Handled together with the response, which may arrive long after this has failed.
      outputTaken.catch(() => undefined);
      const answer = await this.#answer.promise;
      // All output has arrived before the response, but may not have been consumed yet.
      this.#inbox.end();
      await Promise.race([outputTaken, this.#canceled.promise]);
      return answer;
    } catch (error) {
      // Whatever the helper returned for a cancelled request, the caller gets the reason of the cancellation.
      if (this.#isCanceled) await this.#canceled.promise;
      throw error;
    } finally {
      clearTimeout(deadline);
      signal?.removeEventListener("abort", onAbort);
      this.#over.abort(new Error("the request is over"));
      input?.destroy();
    }
  }

  cancel(reason: unknown): void {
    if (this.#isCanceled || this.#over.signal.aborted) return;
    this.#isCanceled = true;
    this.#canceled.reject(reason);
    if (this.#isAnswered) return;
    this.#channel.send({ id: this.#id, cancel: true });
    const late = setTimeout(this.#channel.abandon, cancelMs);
    this.#over.signal.addEventListener("abort", () => clearTimeout(late));
  }

  /** Called when the helper has died. */
  fail(error: SvcError): void {
    this.#isAnswered = true;
    this.#answer.reject(error);
  }

  /**
   * @param data only valid during the call
   * @throws Error if the helper violates the protocol
   */
  receive(header: Header, data: Buffer): void {
    if (header["chunk"])
      this.#inbox.push(this.#returnsOutput ? this.#channel.buffers.copy(data) : Buffer.from(data));
    else if (header["ack"]) this.#outbox.acknowledged(Number(header["ack"]));
    else if (header["event"]) this.#report(header["event"]);
    else {
      this.#isAnswered = true;
      if (header["ok"]) this.#answer.resolve({ value: header["value"], data: Buffer.from(data) });
      else this.#answer.reject(toSvcError(header["error"], this.#request.subject));
    }
  }

  #report(event: unknown): void {
    try {
      this.#request.onEvent?.(event);
    } catch (error) {
      this.cancel(error);
    }
  }

  async #sendInput(): Promise<void> {
    const { input } = this.#request;
    if (!input) return;
    try {
      for await (const bytes of input as AsyncIterable<Uint8Array>) await this.#outbox.send(bytes);
      this.#channel.send({ id: this.#id, end: true });
    } catch (error) {
      // Does nothing if the request is over already, which destroys an unfinished input.
      this.cancel(error);
    }
  }

  /** Passes received output to the consumer. A helper that has finished by then gets no notice of an error. @throws any error of the consumer */
  async #takeOutput(): Promise<void> {
    const { output } = this.#request;
    if (!output) return;
    try {
      for await (const chunk of this.#inbox) {
        await output(chunk);
        if (this.#returnsOutput) this.#channel.buffers.release(chunk);
      }
    } catch (error) {
      this.cancel(error);
      throw error;
    }
  }
}

/** The error of work that a signal ended. */
export function canceledBy(signal: AbortSignal | undefined, subject: string): SvcError {
  const cause: unknown = signal?.reason;
  // The caller aborted with an error of the domain: throw exactly that.
  if (cause instanceof SvcError) return cause as SvcError;
  return new SvcError("canceled", `${subject}: canceled`, { cause });
}
