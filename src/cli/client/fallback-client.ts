/** Lets root work when the daemon is unresponsive: the same call runs in this process. */
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { canceled, UnreachableError } from "./http.ts";
import type { UnaryCall } from "./calls.ts";
import type { CallOptions, Client, Method, Requests } from "./client.ts";

export interface Fallback {
  /** Milliseconds without a response before the daemon is probed. */
  readonly slowMs: number;
  /** Opens the service layer in this process and prints a warning. */
  readonly openInProcess: () => Promise<Client>;
}

/**
 * Sends a read at once, and probes the daemon if the response is slow. Sends a change only after a successful
 * probe: an unresponsive daemon might still apply it later, so that it would be applied twice.
 */
export class FallbackClient implements Client {
  readonly #daemon: Client;
  readonly #fallback: Fallback;
  #isAlive = false;
  #inProcess: Promise<Client> | undefined;

  constructor(daemon: Client, fallback: Fallback) {
    this.#daemon = daemon;
    this.#fallback = fallback;
  }

  async call<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options: CallOptions = {},
  ): Promise<Response> {
    if (this.#inProcess === undefined && call.httpMethod === "GET" && !this.#isAlive) {
      return this.#read(call, request, options);
    }
    return (await this.#aliveClient()).call(call, request, options);
  }

  async #read<Request, Response>(
    call: UnaryCall<Request, Response>,
    request: Request,
    options: CallOptions,
  ): Promise<Response> {
    const silent = new AbortController();
    const { signal } = options;
    const either = signal === undefined ? silent.signal : AbortSignal.any([signal, silent.signal]);
    const slow = setTimeout(() => {
      this.#daemon.isAvailable().then(
        (isAlive) => {
          if (!isAlive) silent.abort();
        },
        () => silent.abort(),
      );
    }, this.#fallback.slowMs);
    try {
      const answer = await this.#daemon.call(call, request, { ...options, signal: either });
      this.#isAlive = true;
      return answer;
    } catch (error) {
      if (!(error instanceof UnreachableError) && !silent.signal.aborted) throw error;
      if (signal?.aborted === true) throw canceled();
      const inProcess = await this.#openInProcess();
      return await inProcess.call(call, request, options);
    } finally {
      clearTimeout(slow);
    }
  }

  async *invoke<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options?: CallOptions,
  ): AsyncIterable<MessageShape<O>> {
    yield* (await this.#aliveClient()).invoke(method, requests, options);
  }

  async outlives(): Promise<boolean> {
    return (await this.#aliveClient()) === this.#daemon;
  }

  isAvailable(signal?: AbortSignal): Promise<boolean> {
    return this.#inProcess === undefined ? this.#daemon.isAvailable(signal) : Promise.resolve(true);
  }

  async #aliveClient(): Promise<Client> {
    if (this.#inProcess !== undefined) return this.#inProcess;
    this.#isAlive ||= await this.#daemon.isAvailable();
    return this.#isAlive ? this.#daemon : this.#openInProcess();
  }

  #openInProcess(): Promise<Client> {
    return (this.#inProcess ??= this.#fallback.openInProcess());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const inProcess = await this.#inProcess?.catch(() => undefined);
    await inProcess?.[Symbol.asyncDispose]();
    await this.#daemon[Symbol.asyncDispose]();
  }
}
