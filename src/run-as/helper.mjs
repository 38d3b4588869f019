/**
 * The program that works as a user. The daemon starts it as that user, and sends many requests at a time over its standard input and
 * output (`frames.mjs`). When the daemon is gone, it cancels its work, kills the commands that it runs, and exits.
 * Argument: the expected user, as JSON of `ExpectedCredentials`, which it checks first.
 *
 * From the daemon: `{id, op, args}` with data, `{id, chunk}` with data, `{id, end}`, `{id, ack}`, `{id, cancel}`. To the daemon:
 * `{hello}` once, then `{id, event}`, `{id, chunk}` with data, `{id, ack}`, and `{id, ok, value}` with data or `{id, error}` at the end.
 */
import { readFileSync } from "node:fs";
import { Socket } from "node:net";
import { ChunkInbox, ChunkOutbox } from "./helper/chunk-flow.mjs";
import { closeInheritedDescriptors } from "./helper/descriptors.mjs";
import { FrameDecoder, writeFrame } from "./helper/frames.mjs";
import { RequestError, hasCode } from "./helper/request-error.mjs";
import { operations } from "./helper/requests.mjs";
import { credentialsMismatch } from "./helper/verify.mjs";

/** Exit status if the process does not run as the expected user (EX_NOPERM of sysexits.h). */
const wrongCredentials = 77;
/** Milliseconds for canceled work to undo what it has begun, once the daemon is gone. */
const undoMs = 60_000;

/** @typedef {import("./helper/frames.mjs").Header} Header */
/** @typedef {import("./helper/requests.mjs").Call} Call */
/** @typedef {(args: unknown, call: Call) => Promise<import("./helper/requests.mjs").Answer>} Operation */
/** @typedef {{ stop: AbortController, inbox: ChunkInbox, outbox: ChunkOutbox, done: Promise<void> }} Work */

/** One connection to the daemon. */
class Service {
  // Not `process.stdout`, whose writes to a pipe are synchronous: a slow daemon would stop all work.
  #out = new Socket({ fd: 1, readable: false, writable: true });
  #decoder = new FrameDecoder();
  /** @type {Map<number, Work>} */
  #work = new Map();
  /** @type {PromiseWithResolvers<void> | undefined} */
  #drain;
  #ending = false;

  start() {
    const end = (/** @type {string} */ why) => void this.#end(why);
    this.#out.on("error", ({ message }) => end(`could not send its responses: ${message}`));
    this.#out.on("drain", () => this.#drain?.resolve());
    process.stdin.on("data", (piece) => this.#receive(/** @type {Buffer} */ (piece)));
    process.stdin.on("end", () => end("lost its connection to svc"));
    process.stdin.on("error", ({ message }) => end(`could not read its requests: ${message}`));
    process.on("SIGTERM", () => end("received SIGTERM"));
    // A killed daemon no longer reads the reason, but the work must still be undone.
    process.stderr.on("error", () => undefined);
    this.#send({ hello: process.pid });
  }

  /** @param {Buffer} piece */
  #receive(piece) {
    // A request that starts now would be interrupted.
    if (this.#ending) return;
    for (const { header, data } of this.#decoder.push(piece)) {
      const { id } = header;
      if (id === undefined) continue;
      if (typeof header["op"] === "string") {
        this.#begin(id, header["op"], header["args"], data);
        continue;
      }
      // The request has ended already.
      const work = this.#work.get(id);
      if (!work) continue;
      if (header["chunk"]) work.inbox.push(data);
      else if (header["end"]) work.inbox.end();
      else if (header["cancel"]) work.stop.abort(new DOMException("canceled", "AbortError"));
      else if (header["ack"]) work.outbox.acknowledged(Number(header["ack"]));
    }
  }

  /**
   * @param {number} id
   * @param {string} op
   * @param {unknown} args
   * @param {Buffer} data
   */
  #begin(id, op, args, data) {
    const stop = new AbortController();
    const { signal } = stop;
    const inbox = new ChunkInbox((bytes) => this.#send({ id, ack: bytes }), signal);
    const outbox = new ChunkOutbox(
      (chunk, onWritten) => this.#send({ id, chunk: true }, chunk, onWritten),
      signal,
    );
    const call = {
      data,
      input: inbox,
      signal,
      emit: async (/** @type {Record<string, unknown>} */ event) => this.#sendWithRoom({ id, event }),
      output: (/** @type {Buffer} */ bytes, /** @type {(() => void) | undefined} */ onWritten) =>
        outbox.send(bytes, onWritten),
    };
    const done = this.#answer(id, op, args, call).finally(() => this.#work.delete(id));
    this.#work.set(id, { stop, inbox, outbox, done });
  }

  /**
   * @param {number} id
   * @param {string} op
   * @param {unknown} args
   * @param {Call} call
   */
  async #answer(id, op, args, call) {
    try {
      if (!Object.hasOwn(operations, op)) throw new RequestError("INVALID", `no operation "${op}"`);
      // The daemon is trusted, and types its requests.
      const run = /** @type {Operation} */ (operations[/** @type {keyof typeof operations} */ (op)]);
      const { value, data } = await run(args, call);
      this.#send({ id, ok: true, value }, data);
    } catch (error) {
      this.#send({ id, error: describe(error) });
    }
  }

  /** @param {Header} header */
  async #sendWithRoom(header) {
    if (this.#send(header)) return;
    this.#drain ??= Promise.withResolvers();
    await this.#drain.promise;
    this.#drain = undefined;
  }

  /**
   * @param {Header} header
   * @param {Uint8Array} [data]
   * @param {() => void} [onWritten]
   * @returns {boolean} Whether there is room for more.
   */
  #send(header, data, onWritten) {
    return this.#out.destroyed || writeFrame(this.#out, header, data, onWritten);
  }

  /** @param {string} why continues "the helper process …" */
  async #end(why) {
    if (this.#ending) return;
    this.#ending = true;
    process.stderr.write(why);
    this.#out.destroy();
    this.#drain?.resolve();
    setTimeout(endNow, undoMs);
    const work = [...this.#work.values()];
    for (const { stop } of work) stop.abort(new Error("the daemon has gone away"));
    await Promise.allSettled(work.map(({ done }) => done));
    endNow();
  }
}

/** Not `process.exit`, which waits for threads of Node and V8, and has waited forever. */
function endNow() {
  process.kill(process.pid, "SIGKILL");
}

/** @param {unknown} error */
function describe(error) {
  if (hasCode(error, "ABORT_ERR") || (error instanceof Error && error.name === "AbortError")) {
    return { code: "CANCELED", message: "canceled" };
  }
  if (error instanceof RangeError) return { code: "LIMIT", message: error.message };
  if (!(error instanceof Error)) return { code: "UNKNOWN", message: String(error) };
  const code = "code" in error && typeof error.code === "string" ? error.code : "UNKNOWN";
  const subject = "subject" in error ? { subject: error.subject } : {};
  return { code, message: error.message.slice(0, 8192), ...subject };
}

/** @type {unknown} */
const expected = JSON.parse(process.argv[2] ?? "{}");
const mismatch = credentialsMismatch(
  readFileSync("/proc/self/status", "latin1"),
  /** @type {import("./helper/verify.mjs").ExpectedCredentials} */ (expected),
);
if (mismatch !== undefined) {
  process.stderr.write(`wrong identity: ${mismatch}\n`);
  process.exit(wrongCredentials);
}
closeInheritedDescriptors();
// The option was for this program; a command may also be a Node program.
delete process.env["NODE_OPTIONS"];
process.umask(0o022);
new Service().start();
