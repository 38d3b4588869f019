/** Runs git as the daemon, on its own cache and on remote repositories, never in a user's directory. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { PassThrough, type Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { SvcError } from "../../errors.ts";
import { lowerPriority } from "../../sys/priority.ts";
import { gitCommand, type GitSurroundings } from "./git-command.ts";
import type { GitTransport } from "./git-url.ts";
import { gitFailure, type GitEnd } from "./git-failure.ts";

/** One end of a connection: what git sends, and what it receives. */
export interface GitConnection {
  readonly input: Readable;
  /** Ended by the caller. */
  readonly output: Writable;
  /** Aborted when git has ended. */
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  readonly onStderrLine: (line: string) => void;
}

/** Connects git with a server until the connection ends. */
export type Connect = (connection: GitConnection) => Promise<void>;

export interface GitRunOptions {
  /** Subject of messages: a URL. */
  subject: string;
  /** Milliseconds until it is killed. */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
  transport?: GitTransport;
  /** Added to git's environment. */
  env?: Readonly<Record<string, string>>;
  /** Serves descriptor 3, a socket. */
  connect?: Connect | undefined;
  stdin?: Readable;
  /** Receives standard output instead of the result; ended when git succeeds, destroyed when it fails. */
  stdout?: Writable;
  /** Limit of buffered standard output. Default 16 MiB; ignored with `stdout`. */
  maxOutputBytes?: number;
  /** Called with each line of standard error; carriage returns also end lines. */
  onStderrLine?: ((line: string) => void) | undefined;
}

const maxStderrLines = 20;
const nice = 10;

export interface GitProcess {
  /**
   * Runs git to its end; returns its standard output.
   * @throws SvcError `git_failed`, `canceled`, `deadline_exceeded`, `resource_exhausted`.
   */
  run: (args: readonly string[], options: GitRunOptions) => Promise<Buffer>;
}

export function createGitProcess(environment: GitSurroundings): GitProcess {
  return {
    async run(args, options) {
      if (options.signal?.aborted) throw canceled(options.subject);
      const { argv, env } = gitCommand(args, environment, options.transport);
      const [program = "", ...rest] = argv;
      const connection = options.connect === undefined ? [] : (["pipe"] as const);
      // In its own process group, so that git's helpers (remote-https, index-pack) are killed with it.
      const child = spawn(program, rest, {
        env: { ...env, ...options.env },
        cwd: "/",
        detached: true,
        stdio: ["pipe", "pipe", "pipe", ...connection],
      });
      // Requests to the daemon have priority over unpacking fetched data.
      if (child.pid !== undefined) lowerPriority(nice, child.pid);
      return new GitRun(child, options).result();
    },
  };
}

class GitRun {
  readonly #child: ChildProcess;
  readonly #options: GitRunOptions;
  readonly #stderr: string[] = [];
  readonly #output: Buffer[] = [];
  /** Aborted when git has exited or is killed. */
  readonly #ended = new AbortController();
  #outputBytes = 0;
  #failure: unknown;

  constructor(child: ChildProcess, options: GitRunOptions) {
    this.#child = child;
    this.#options = options;
  }

  async result(): Promise<Buffer> {
    const { signal, timeoutMs, subject } = this.#options;
    const deadline = setTimeout(() => this.#end(timedOut(subject, timeoutMs)), timeoutMs);
    const cancel = (): void => this.#end(canceled(subject));
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      const streams = [this.#feed(), this.#collect(), this.#listen(), this.#connect()];
      const [end] = await Promise.all([this.#exit(), ...streams]);
      if (this.#failure !== undefined) throw this.#failure as Error;
      if (end.exitCode !== 0) throw gitFailure(subject, this.#stderr, end);
      this.#options.stdout?.end();
      return Buffer.concat(this.#output);
    } catch (error) {
      this.#end(error);
      this.#options.stdout?.destroy(this.#failure as Error);
      throw this.#failure;
    } finally {
      clearTimeout(deadline);
      signal?.removeEventListener("abort", cancel);
    }
  }

  async #exit(): Promise<GitEnd> {
    this.#child.once("exit", () => this.#ended.abort());
    try {
      const [exitCode, signal] = (await once(this.#child, "close")) as [number | null, string | null];
      return { exitCode, signal };
    } catch (cause) {
      const message =
        (cause as NodeJS.ErrnoException).code === "ENOENT"
          ? "prlimit (of util-linux) is not installed on this host"
          : "git cannot be started";
      throw new SvcError("git_failed", message, { cause });
    }
  }

  async #feed(): Promise<void> {
    const { stdin } = this.#child;
    if (stdin === null) return;
    if (this.#options.stdin === undefined) {
      stdin.on("error", () => undefined).end();
      return;
    }
    // Git may close its input early, and reports an error itself if data is missing.
    await this.#until(pipeline(this.#options.stdin, stdin), isClosedPipe);
  }

  async #connect(): Promise<void> {
    const { connect, timeoutMs } = this.#options;
    if (connect === undefined) return;
    const socket = this.#child.stdio[3] as Socket;
    // Git shuts down its sending side when it needs nothing more.
    socket.allowHalfOpen = true;
    // Git's own error takes precedence.
    socket.on("error", () => undefined);
    // The consumer may destroy it, while git has not yet read everything from the socket.
    const input = socket.pipe(new PassThrough());
    const onStderrLine = (line: string): void => this.#stderrLine(line);
    const { signal } = this.#ended;
    try {
      await connect({ input, output: socket, signal, timeoutMs, onStderrLine });
    } catch (error) {
      if (!signal.aborted) this.#end(error);
    } finally {
      input.destroy();
      socket.end();
      // Otherwise it never closes.
      socket.resume();
    }
  }

  async #collect(): Promise<void> {
    const { stdout } = this.#child;
    if (stdout === null) return;
    if (this.#options.stdout !== undefined) {
      await this.#until(pipeline(stdout, this.#options.stdout, { end: false }));
      return;
    }
    const max = this.#options.maxOutputBytes ?? 16 * 2 ** 20;
    stdout.on("data", (chunk: Buffer) => {
      this.#outputBytes += chunk.length;
      if (this.#outputBytes <= max) this.#output.push(chunk);
      else this.#end(tooMuch(this.#options.subject, max));
    });
    await this.#until(once(stdout, "close"));
  }

  async #listen(): Promise<void> {
    const { stderr } = this.#child;
    if (stderr === null) return;
    let rest = "";
    stderr.setEncoding("utf8").on("data", (chunk: string) => {
      const lines = (rest + chunk).split(/[\r\n]+/);
      rest = (lines.pop() ?? "").slice(-4096);
      for (const line of lines) this.#stderrLine(line);
    });
    await this.#until(once(stderr, "close"));
    this.#stderrLine(rest);
  }

  #stderrLine(line: string): void {
    if (line === "") return;
    this.#stderr.push(line.slice(0, 1024));
    if (this.#stderr.length > maxStderrLines) this.#stderr.shift();
    this.#options.onStderrLine?.(line);
  }

  /** Waits for a stream of the child; a broken stream kills the child, whose own error takes precedence. */
  async #until(work: Promise<unknown>, harmless: (error: unknown) => boolean = () => false): Promise<void> {
    try {
      await work;
    } catch (error) {
      if (!harmless(error)) this.#end(error);
    }
  }

  #end(failure: unknown): void {
    this.#failure ??= failure;
    this.#ended.abort();
    const { pid, exitCode, signalCode } = this.#child;
    if (pid === undefined || exitCode !== null || signalCode !== null) return;
    try {
      process.kill(-pid, "SIGKILL");
    } catch {
      this.#child.kill("SIGKILL");
    }
  }
}

function isClosedPipe(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "EPIPE" || code === "ECONNRESET" || code === "ERR_STREAM_PREMATURE_CLOSE";
}

function timedOut(subject: string, timeoutMs: number): SvcError {
  const message = `git did not finish within ${Math.round(timeoutMs / 1000)} s for ${subject}`;
  return new SvcError("deadline_exceeded", message);
}

function canceled(subject: string): SvcError {
  return new SvcError("canceled", `fetching ${subject} was canceled`);
}

function tooMuch(subject: string, max: number): SvcError {
  return new SvcError("git_failed", `the output of git about ${subject} is too large (limit ${max} bytes)`);
}
