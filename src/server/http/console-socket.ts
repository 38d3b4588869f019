/**
 * A console's WebSocket: binary frames have the terminal's bytes, text frames have other messages as JSON.
 */
import { create } from "@bufbuild/protobuf";
import type { RawData, WebSocket } from "ws";
import {
  ConsoleInputSchema,
  type ConsoleInput,
  type ConsoleOpened,
  type ConsoleOutput,
} from "../../../gen/svc/v1/app_pb.ts";
import { type SvcError, clientGone, invalidField } from "../../errors.ts";

/** Milliseconds between pings; a client without a pong until the next ping is disconnected. */
const pingIntervalMs = 30_000;
/** Limit for typed input that the terminal has not accepted yet. */
const maxPendingBytes = 2 ** 20;
/** Estimated memory of a message besides its bytes. */
const messageBytes = 256;
/** Limit for output that is not sent yet. */
const maxUnsentBytes = 256 * 1024;
/** Milliseconds to wait for the client's close frame. */
const closeMs = 2_000;
/** RFC 6455, 7.4.1: going away, unacceptable data, unexpected condition. */
const normal = 1000;
const unacceptable = 1008;

export class ConsoleSocket {
  readonly #socket: WebSocket;
  readonly #gone = new AbortController();
  readonly #arrived: ConsoleInput[] = [];
  #pendingBytes = 0;
  #more = Promise.withResolvers<undefined>();
  #isAlive = true;
  #isOver = false;

  /** @param intervalMs between two pings */
  constructor(socket: WebSocket, intervalMs = pingIntervalMs) {
    this.#socket = socket;
    const pings = setInterval(() => {
      if (!this.#isAlive) socket.terminate();
      this.#isAlive = false;
      if (socket.readyState === socket.OPEN) socket.ping();
    }, intervalMs);
    socket.on("pong", () => (this.#isAlive = true));
    socket.on("error", () => undefined);
    socket.on("message", (data, isBinary) => this.#take(data, isBinary));
    socket.on("close", () => {
      clearInterval(pings);
      this.#gone.abort(clientGone());
      this.#more.resolve(undefined);
    });
  }

  /** Aborts when the client disconnects. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Yields `first`, then the client's input, until the exit code was sent. */
  async *inputs(first: ConsoleInput): AsyncGenerator<ConsoleInput, void> {
    yield first;
    while (!this.#gone.signal.aborted) {
      const input = this.#arrived.shift();
      if (input !== undefined) {
        this.#pendingBytes -= sizeOf(input);
        if (this.#pendingBytes <= maxPendingBytes) this.#socket.resume();
        yield input;
        continue;
      }
      if (this.#isOver) return;
      this.#more = Promise.withResolvers();
      await this.#more.promise;
    }
    throw clientGone();
  }

  /** Resolves when more can be sent. */
  async send({ output }: ConsoleOutput): Promise<void> {
    switch (output.case) {
      case "data":
        await this.#write(output.value);
        return;
      case "opened":
        await this.#send(openedOf(output.value));
        return;
      case "gap":
        await this.#send({ type: "gap", bytes: Number(output.value.bytes) });
        return;
      case "exit":
        await this.#send({ type: "exit", code: output.value.code });
        this.#isOver = true;
        this.#more.resolve(undefined);
        return;
      case undefined:
    }
  }

  close(): void {
    this.#close(normal);
  }

  /** Sends the error, and closes. */
  fail({ message, code, reason }: SvcError): void {
    void this.#send({ type: "error", error: message, code, reason });
    this.#close(unacceptable);
  }

  #close(code: number): void {
    this.#socket.close(code);
    setTimeout(() => this.#socket.terminate(), closeMs).unref();
  }

  #take(data: RawData, isBinary: boolean): void {
    try {
      // Copied, because `ws` passes a view that retains the whole buffer of its read.
      const input = isBinary
        ? { data: new Uint8Array(bytesOf(data)) }
        : readControl(bytesOf(data).toString("utf8"));
      const message = create(ConsoleInputSchema, input);
      this.#arrived.push(message);
      this.#pendingBytes += sizeOf(message);
      if (this.#pendingBytes > maxPendingBytes) this.#socket.pause();
      this.#more.resolve(undefined);
    } catch (error) {
      this.fail(error as SvcError);
      this.#gone.abort(error);
    }
  }

  #send(message: object): Promise<void> {
    return this.#write(JSON.stringify(message));
  }

  async #write(data: Uint8Array | string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#socket.send(data, { binary: typeof data !== "string" }, () => resolve(undefined));
    if (this.#socket.bufferedAmount > maxUnsentBytes) await promise;
  }
}

/** Messages without text use memory, too. */
function sizeOf({ data }: ConsoleInput): number {
  return messageBytes + data.length;
}

function openedOf({ interactive, recording }: ConsoleOpened): object {
  return { type: "opened", interactive, ...(recording !== "" && { recording }) };
}

function bytesOf(data: RawData): Buffer {
  if (Buffer.isBuffer(data)) return data;
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data);
}

/** @throws SvcError `invalid_request` */
function readControl(text: string): { resize: { columns: number; rows: number } } | { ack: bigint } {
  const parsed = parse(text);
  if (parsed?.["type"] === "resize") {
    return { resize: { columns: countOf(parsed, "cols", 1_000), rows: countOf(parsed, "rows", 1_000) } };
  }
  if (parsed?.["type"] === "ack") {
    return { ack: BigInt(countOf(parsed, "bytes", Number.MAX_SAFE_INTEGER)) };
  }
  throw invalidField("", "a text frame must be a JSON object with the type `resize` or `ack`");
}

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null ? (parsed as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function countOf(message: Record<string, unknown>, field: string, most: number): number {
  const count = message[field];
  if (typeof count === "number" && Number.isInteger(count) && count >= 1 && count <= most) return count;
  throw invalidField(field, `must be a whole number from 1 to ${most}`);
}
