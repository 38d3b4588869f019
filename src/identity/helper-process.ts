/**
 * One helper process and the connection to it. The process belongs to its user, who can stop it, trace it and make it
 * lie: whatever it sends is bounded and checked, and a helper that breaks the protocol is killed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { SvcError } from "../errors.ts";
import { maxChunkBytes, windowBytes } from "./helper/chunk-flow.mjs";
import { FrameDecoder, type Header, writeFrame } from "./helper/frames.mjs";
import { type ExpectedIdentity, identityMismatch } from "./helper/verify.mjs";
import { openWidePipe, type WidePipe } from "./helper/wide-pipe.mjs";
import { Blocks } from "../lib/blocks.ts";
import { hasMoreStructure } from "../lib/json-structure.ts";
import type { Op } from "./helper-protocol.ts";
import type { Launch } from "./launch.ts";
import { type HelperAnswer, type HelperRequest, PendingRequest, cancelMs } from "./pending-request.ts";

/** Milliseconds from launch to the helper's first word. */
const startMs = 15_000;
/** Milliseconds for what a helper wrote before it ended: others of its user may hold its pipes open. */
const drainMs = 2_000;
const maxStderrChars = 4096;
/** Brackets, commas, colons and quotes of a header: lists of any length are sent as data. */
const maxHeaderStructure = 1 << 16;
/** As many as one stream has under way. */
const keptBlocks = windowBytes / maxChunkBytes;

/** How a helper ended. */
export interface HelperEnd {
  reason: string;
  /** The commands that it was running. */
  runIds: string[];
}

export class HelperProcess {
  readonly #child: ChildProcess;
  readonly #decoder = new FrameDecoder({
    isTooMuch: (header) => hasMoreStructure(header, maxHeaderStructure),
    isLent: true,
  });
  readonly #blocks = new Blocks(maxChunkBytes, keptBlocks);
  readonly #pending = new Map<number, PendingRequest>();
  readonly #ready = Promise.withResolvers<undefined>();
  readonly #ended = Promise.withResolvers<HelperEnd>();
  #nextId = 1;
  #stderr = "";
  #killedBecause: string | undefined;
  #dead = false;

  /** @param output what it writes comes from there; its own standard output where there is none */
  private constructor(child: ChildProcess, output: WidePipe | undefined) {
    this.#child = child;
    // start() looks at it, which may have given up.
    this.#ready.promise.catch(() => undefined);
    child.stdout?.on("data", (piece: Buffer) => this.#receive(piece));
    const received = output
      ?.forward((piece) => {
        this.#receive(piece);
        return undefined;
      })
      .catch(() => undefined);
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-maxStderrChars);
    });
    child.stdin?.on("error", () => undefined);
    child.once("error", (error) => this.#end(error.message));
    // Not "exit": an answer, and the reason, may still be in the pipes.
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
   * Starts a helper and makes sure, by the kernel's account of it, that it is who it was meant to be.
   * @throws SvcError `failed_precondition` when the identity cannot be had: nothing was done then.
   */
  static async start(launch: Launch, expected: ExpectedIdentity, userName: string): Promise<HelperProcess> {
    const helper = HelperProcess.#spawn(launch);
    const tooLate = setTimeout(() => void helper.kill(`did not start within ${startMs} ms`), startMs);
    try {
      await helper.#ready.promise;
      const mismatch = identityMismatch(await readFile(`/proc/${helper.pid}/status`, "latin1"), expected);
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

  static #spawn({ command, args, env }: Launch): HelperProcess {
    const output = openWidePipe();
    try {
      const child = spawn(command, args, {
        cwd: "/",
        env,
        stdio: ["pipe", output?.writeFd ?? "pipe", "pipe"],
        // Ctrl-C on the daemon's terminal is for the daemon, which ends its helpers in order.
        detached: true,
      });
      return new HelperProcess(child, output);
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
    return this.#dead;
  }

  /** Resolves when the process is gone. */
  get ended(): Promise<HelperEnd> {
    return this.#ended.promise;
  }

  /** @throws SvcError as the helper reports it; `canceled`, `deadline_exceeded`; `unavailable` when the helper dies. */
  async request<O extends Op>(request: HelperRequest<O>): Promise<HelperAnswer<O>> {
    if (this.#dead) throw helperDied("ended before the request");
    const id = this.#nextId++;
    const pending = new PendingRequest(id, request, {
      send: (header, data, onWritten) => this.#send(header, data, onWritten),
      giveUp: () => void this.kill("did not end cancelled work in time"),
      blocks: this.#blocks,
    });
    this.#pending.set(id, pending);
    try {
      return await pending.run();
    } finally {
      this.#pending.delete(id);
    }
  }

  /** Lets it end its work, and makes it when it does not. Resolves when it is gone. */
  async close(): Promise<void> {
    this.#child.stdin?.end();
    const tooLate = setTimeout(() => void this.kill("did not end in time"), cancelMs);
    await this.#ended.promise;
    clearTimeout(tooLate);
  }

  /** Ends it now. Resolves when it is gone. */
  async kill(reason: string): Promise<void> {
    if (!this.#dead) {
      this.#killedBecause ??= reason;
      this.#child.kill("SIGKILL");
    }
    await this.#ended.promise;
  }

  #receive(piece: Buffer): void {
    try {
      for (const { header, data } of this.#decoder.push(piece)) {
        if (header["hello"] !== undefined) this.#ready.resolve(undefined);
        else if (header.id !== undefined) this.#pending.get(header.id)?.receive(header, data);
      }
    } catch (error) {
      void this.kill(`broke the protocol: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** @throws SvcError `resource_exhausted` for a message above the bound. */
  #send(header: Header, data?: Uint8Array, onWritten?: () => void): void {
    const { stdin } = this.#child;
    if (this.#dead || !stdin) return;
    try {
      writeFrame(stdin, header, data, onWritten);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new SvcError("too_many", error.message);
    }
  }

  #end(reason: string): void {
    if (this.#dead) return;
    this.#dead = true;
    this.#ready.reject(new Error(reason));
    const pending = [...this.#pending.values()];
    for (const request of pending) request.fail(helperDied(reason));
    this.#ended.resolve({ reason, runIds: pending.flatMap(({ runId }) => runId ?? []) });
  }
}

function helperDied(reason: string): SvcError {
  return new SvcError("unavailable", `the work was cut short: its helper process ${reason}; try again`);
}
