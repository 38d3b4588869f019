/** The entry point of the S3 thread. */
import { parentPort, type MessagePort } from "node:worker_threads";
import { PartHashes } from "./part-hashes.ts";
import { S3Bucket } from "./s3-bucket.ts";
import { pieceWindow, type S3Call, type S3Connection, type S3Question, type S3Reply } from "./s3-calls.ts";
import { failureOf } from "./s3-failure.ts";

/** A running call. */
class RunningCall {
  readonly ending = new AbortController();
  readonly #reply: (bytes: Uint8Array) => void;
  #unacknowledged = 0;
  #wake: (() => void) | undefined;

  constructor(reply: (bytes: Uint8Array) => void) {
    this.#reply = reply;
    this.ending.signal.addEventListener("abort", () => this.#wake?.());
  }

  /** Resolves when the next piece may be sent. */
  async send(bytes: Uint8Array): Promise<void> {
    this.#reply(bytes);
    this.#unacknowledged++;
    while (this.#unacknowledged >= pieceWindow) {
      this.ending.signal.throwIfAborted();
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  acknowledge(): void {
    this.#unacknowledged--;
    this.#wake?.();
  }
}

function serve(port: MessagePort): void {
  const buckets = new Map<string, S3Bucket>();
  const hashes = new PartHashes();
  const running = new Map<number, RunningCall>();
  const post = (reply: S3Reply, transfer: readonly ArrayBuffer[] = []): void =>
    port.postMessage(reply, transfer);

  const bucketOf = (connection: S3Connection): S3Bucket => {
    const key = JSON.stringify(connection);
    const bucket = buckets.get(key) ?? new S3Bucket(connection, hashes);
    buckets.set(key, bucket);
    return bucket;
  };

  const run = async (id: number, connection: S3Connection, call: S3Call): Promise<void> => {
    const current = new RunningCall((bytes) => {
      // Copied, because the client's buffer may be part of a larger one.
      const own = Uint8Array.from(bytes);
      post({ kind: "piece", id, bytes: own }, [own.buffer]);
    });
    running.set(id, current);
    try {
      const result = await execute(bucketOf(connection), call, current, (doneBytes) =>
        post({ kind: "progress", id, doneBytes }),
      );
      post({ kind: "result", id, result });
    } catch (error) {
      post({ kind: "failure", id, failure: failureOf(error, connection) });
    } finally {
      running.delete(id);
    }
  };

  port.on("message", (question: S3Question) => {
    if (question.kind === "call") void run(question.id, question.connection, question.call);
    else if (question.kind === "ack") running.get(question.id)?.acknowledge();
    else running.get(question.id)?.ending.abort();
  });
}

function execute(
  bucket: S3Bucket,
  call: S3Call,
  current: RunningCall,
  onProgress: (doneBytes: number) => void,
): Promise<unknown> {
  const { signal } = current.ending;
  switch (call.operation) {
    case "list":
      return bucket.list(call.request, signal);
    case "head":
      return bucket.head(call.request, signal);
    case "put":
      return bucket.put(call.request, signal, onProgress);
    case "read":
      return bucket.read(call.request, signal, (bytes) => current.send(bytes));
    case "remove":
      return bucket.remove(call.request, signal);
    case "abandon":
      return bucket.abandon(call.request, signal);
  }
}

if (parentPort !== null) serve(parentPort);
