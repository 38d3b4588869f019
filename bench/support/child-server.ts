/** A server in a child process: a program of `bench/support/` that prints a line when it listens. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Target } from "./load.ts";

export class ChildServer implements Target, AsyncDisposable {
  readonly socket: string;
  readonly #process: ChildProcess;

  private constructor(socket: string, process: ChildProcess) {
    this.socket = socket;
    this.#process = process;
  }

  /** Starts `program` with the path of its socket and further arguments. @throws Error if it exits before it listens */
  static async start(program: string, socket: string, ...args: string[]): Promise<ChildServer> {
    const child = spawn(process.execPath, [join(import.meta.dirname, program), socket, ...args], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await Promise.race([
      once(child.stdout, "data"),
      once(child, "exit").then(() => Promise.reject(new Error(`${program} does not start`))),
    ]);
    return new ChildServer(socket, child);
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const ended = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    await ended;
    await rm(this.socket, { force: true });
  }
}
