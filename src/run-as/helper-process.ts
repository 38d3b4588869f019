/**
 * One helper process and the connection to it.
 *
 * The process belongs to its user, who can stop it, trace it and change what it sends. Everything received is bounded
 * and checked, and a helper that violates the protocol is killed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { SvcError } from "../errors.ts";
import { maxChunkBytes, windowBytes } from "./helper/chunk-flow.mjs";
import { type Frame, FrameDecoder, type Header, writeFrame } from "./helper/frames.mjs";
import { type ExpectedCredentials, credentialsMismatch } from "./helper/verify.mjs";
import { openWidePipe, type WidePipe } from "./helper/wide-pipe.mjs";
import { BufferPool } from "../lib/buffer-pool.ts";
import { hasMoreStructure } from "../lib/json.ts";
import type { Op } from "./helper-protocol.ts";
import type { Launch } from "./launch.ts";
import { type HelperAnswer, type HelperRequest, PendingRequest, cancelMs } from "./pending-request.ts";

/** Milliseconds from launch to the helper's first message. */
const startMs = 15_000;
/** Milliseconds to read remaining output after the helper exits: other processes of its user may hold its pipes open. */
const drainMs = 2_000;
const maxStderrChars = 4096;
/** Brackets, commas, colons and quotes of a header. Lists of any length are sent as data instead. */
const maxHeaderStructure = 1 << 16;
/** As many as one stream can have in flight. */
const maxFreeBuffers = windowBytes / maxChunkBytes;

/**
 * Called after each message of a helper, because its user can send a hundred thousand in one read. @returns a promise if other
 * users must be served first
 */
export type YieldToOthers = () => Promise<void> | undefined;

export interface HelperEnd {
  reason: string;
  /** The commands that the helper was running. */
  runIds: string[];
}

export class HelperProcess {
  readonly #child: ChildProcess;
  readonly #decoder = new FrameDecoder({
    isTooMuch: (header) => hasMoreStructure(header, maxHeaderStructure),
    isLent: true,
  });
  readonly #buffers = new BufferPool(maxChunkBytes, maxFreeBuffers);
  readonly #pending = new Map<number, PendingRequest>();
  readonly #ready = Promise.withResolvers<undefined>();
  readonly #ended = Promise.withResolvers<HelperEnd>();
  readonly #yieldToOthers: YieldToOthers;
  #nextId = 1;
  #stderr = "";
  #killedBecause: string | undefined;
  #hasDied = false;
  #isClosing = false;

  /** @param output pipe for the helper's output; default: the helper's standard output */
  private constructor(child: ChildProcess, output: WidePipe | undefined, yieldToOthers: YieldToOthers) {
    this.#child = child;
    this.#yieldToOthers = yieldToOthers;
    // `start()` handles the rejection, but may have failed before.
    this.#ready.promise.catch(() => undefined);
    const { stdout } = child;
    stdout?.on("data", (piece: Buffer) => {
      const rest = this.#receive(piece);
      if (rest === undefined) return;
      stdout.pause();
      void rest.then(() => stdout.resume());
    });
    const received = output?.forward((piece) => this.#receive(piece)).catch(() => undefined);
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-maxStderrChars);
    });
    child.stdin?.on("error", () => undefined);
    child.once("error", (error) => this.#end(error.message));
    // Not "exit": the response and the reason may still be in the pipes.
    child.once("close", (code, signal) => {
      const reason =
        this.#killedBecause ?? (this.#stderr.trim() || `ended with ${signal ?? `status ${String(code)}`}`);
      void Promise.resolve(received).then(() => this.#end(reason));
    });
    child.once("exit", () => {
      const pipes = [child.stdin, child.stdout, child.stderr, output];
      const tooLate = setTimeout(() => {
        for (const pipe of pipes) pipe?.destroy();
      }, drainMs);
      void this.#ended.promise.then(() => clearTimeout(tooLate));
    });
  }

  /**
   * Starts a helper and checks in /proc that it runs as the expected user.
   * @throws SvcError `not_possible` if the process cannot run as the user; nothing was done in this case
   */
  static async start(
    launch: Launch,
    expected: ExpectedCredentials,
    userName: string,
    yieldToOthers: YieldToOthers,
  ): Promise<HelperProcess> {
    const helper = HelperProcess.#spawn(launch, yieldToOthers);
    const tooLate = setTimeout(() => void helper.kill(`did not start within ${startMs} ms`), startMs);
    try {
      await helper.#ready.promise;
      const mismatch = credentialsMismatch(await readFile(`/proc/${helper.pid}/status`, "latin1"), expected);
      if (mismatch !== undefined) throw new Error(`wrong identity: ${mismatch}`);
      return helper;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      await helper.kill(why);
      throw new SvcError("not_possible", `cannot act as user "${userName}": ${why}`, { cause: error });
    } finally {
      clearTimeout(tooLate);
    }
  }

  static #spawn({ command, args, env }: Launch, yieldToOthers: YieldToOthers): HelperProcess {
    const output = openWidePipe();
    try {
      const child = spawn(command, args, {
        cwd: "/",
        env,
        stdio: ["pipe", output?.writeFd ?? "pipe", "pipe"],
        // Ctrl-C on the daemon's terminal must reach only the daemon, which stops its helpers in order.
        detached: true,
      });
      return new HelperProcess(child, output, yieldToOthers);
    } catch (error) {
      output?.destroy();
      throw error;
    } finally {
      if (output) closeSync(output.writeFd);
    }
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  get dead(): boolean {
    return this.#hasDied;
  }

  /** Resolves when the process has exited. */
  get ended(): Promise<HelperEnd> {
    return this.#ended.promise;
  }

  /** @throws SvcError as the helper reports it; `canceled`; `deadline_exceeded`; `unavailable` if the helper dies */
  async request<O extends Op>(request: HelperRequest<O>): Promise<HelperAnswer<O>> {
    if (this.#isClosing) throw svcStops();
    if (this.#hasDied) throw helperDied("ended before the request");
    const id = this.#nextId++;
    const pending = new PendingRequest(id, request, {
      send: (header, data, onWritten) => this.#send(header, data, onWritten),
      abandon: () => void this.kill("did not stop canceled work in time"),
      buffers: this.#buffers,
    });
    this.#pending.set(id, pending);
    try {
      return await pending.run();
    } finally {
      this.#pending.delete(id);
    }
  }

  /** Asks the helper to exit, and kills it if it does not. Its requests are canceled. Resolves when it has exited. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#child.stdin?.end();
    const tooLate = setTimeout(() => void this.kill("did not exit in time"), cancelMs);
    await this.#ended.promise;
    clearTimeout(tooLate);
  }

  /** Kills the helper. Resolves when it has exited. */
  async kill(reason: string): Promise<void> {
    if (!this.#hasDied) {
      this.#killedBecause ??= reason;
      this.#child.kill("SIGKILL");
    }
    await this.#ended.promise;
  }

  /** @returns a promise if messages of the piece wait for their turn; the piece must not change until it resolves */
  #receive(piece: Buffer): Promise<void> | undefined {
    const frames = this.#decoder.push(piece);
    const turn = this.#handle(frames);
    return turn === undefined ? undefined : this.#handleRest(frames, turn);
  }

  async #handleRest(frames: Generator<Frame, void>, first: Promise<void>): Promise<void> {
    for (let turn: Promise<void> | undefined = first; turn !== undefined; turn = this.#handle(frames))
      await turn;
  }

  /** @returns undefined after the last message, else a promise for the next turn */
  #handle(frames: Generator<Frame, void>): Promise<void> | undefined {
    try {
      for (let next = frames.next(); next.done !== true; next = frames.next()) {
        const { header, data } = next.value;
        if (header["hello"] !== undefined) this.#ready.resolve(undefined);
        else if (header.id !== undefined) this.#pending.get(header.id)?.receive(header, data);
        const turn = this.#yieldToOthers();
        if (turn !== undefined) return turn;
      }
    } catch (error) {
      void this.kill(`violated the protocol: ${error instanceof Error ? error.message : String(error)}`);
    }
    return undefined;
  }

  /** @throws SvcError `too_many` for a message above the size limit */
  #send(header: Header, data?: Uint8Array, onWritten?: () => void): void {
    const { stdin } = this.#child;
    if (this.#hasDied || !stdin) return;
    try {
      writeFrame(stdin, header, data, onWritten);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new SvcError("too_many", error.message);
    }
  }

  #end(reason: string): void {
    if (this.#hasDied) return;
    this.#hasDied = true;
    this.#ready.reject(new Error(reason));
    const pending = [...this.#pending.values()];
    const error = this.#isClosing ? svcStops() : helperDied(reason);
    for (const request of pending) request.fail(error);
    this.#ended.resolve({ reason, runIds: pending.flatMap(({ runId }) => runId ?? []) });
  }
}

/** A helper with requests is closed only when the daemon stops. */
function svcStops(): SvcError {
  return new SvcError("unavailable", "the work was interrupted: svc is stopping; try again when svc runs");
}

function helperDied(reason: string): SvcError {
  return new SvcError("unavailable", `the work was interrupted: its helper process ${reason}; try again`);
}
