/**
 * A daemon behind ssh, reached by `svc dial-stdio` there: no port is opened, and the kernel there says who asks.
 * The system's own ssh is used, with the user's configuration, keys and known hosts.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { Duplex, type Readable, type Writable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { NodeAddress } from "./address.ts";
import { connectTimeoutMs, type FarStream } from "./far-stream.ts";

export type SshAddress = Extract<NodeAddress, { kind: "ssh" }>;

export interface SshOptions {
  /** The program with its first arguments. */
  readonly command: readonly string[];
  /** Values of `-o`. */
  readonly options: readonly string[];
}

/** Bytes of what ssh and the far side say that are kept: the last ones. */
const maxSaidBytes = 4096;
/** Milliseconds that ssh has to end by itself, once its bytes have. */
const endTimeoutMs = 2_000;

/** Arguments of ssh. The address was checked, and `--` ends the options for those who trust no check. */
export function sshArguments(address: SshAddress, options: readonly string[]): readonly string[] {
  const { user, host, port, socketPath } = address;
  const socket = socketPath === undefined ? "" : ` --socket '${socketPath}'`;
  return [
    "-T",
    ...options.flatMap((option) => ["-o", option]),
    ...["-o", `ConnectTimeout=${connectTimeoutMs / 1000}`],
    ...(user === undefined ? [] : ["-l", user]),
    ...(port === undefined ? [] : ["-p", String(port)]),
    "--",
    host,
    `svc${socket} dial-stdio`,
  ];
}

export function openSsh(address: SshAddress, { command, options }: SshOptions): FarStream {
  const [program = "ssh", ...first] = command;
  // A session of its own: Ctrl-C is for svc, which may have something to put in order over this very connection.
  const child = spawn(program, [...first, ...sshArguments(address, options)], {
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  return new SshStream(address.host, program, child);
}

class SshStream implements FarStream {
  readonly duplex: Duplex;
  readonly #host: string;
  readonly #program: string;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #closed: Promise<void>;
  #said: Buffer = Buffer.alloc(0);
  #startFailure: Error | undefined;

  constructor(host: string, program: string, child: ChildProcessByStdio<Writable, Readable, Readable>) {
    this.#host = host;
    this.#program = program;
    this.#child = child;
    this.#closed = new Promise((resolve) => {
      child.once("close", () => resolve());
      child.once("error", (error) => {
        this.#startFailure = error;
        resolve();
      });
    });
    child.stderr.on("data", (bytes: Buffer) => {
      this.#said = Buffer.concat([this.#said, bytes]).subarray(-maxSaidBytes);
    });
    this.duplex = new Piped(child);
  }

  async failure(cause?: unknown): Promise<SvcError> {
    await Promise.race([this.#closed, setTimeout(endTimeoutMs, undefined, { ref: false })]);
    return new SvcError("unavailable", this.#sentence(cause), { cause });
  }

  #sentence(cause: unknown): string {
    const [host, code] = [this.#host, this.#child.exitCode];
    if (this.#startFailure !== undefined) {
      return `${this.#program} cannot be run, which reaches ${host}: install an ssh client, or name yours in SVC_SSH`;
    }
    const words = lastWords(this.#said.toString("utf8"));
    if (code === 127 || code === 126) {
      return `svc was not found on ${host}: install it there, on the PATH of shells without a terminal (${words})`;
    }
    if (code === 255) return `ssh cannot reach ${host}: ${words === "" ? "it does not say why" : words}`;
    if ((cause as NodeJS.ErrnoException | undefined)?.code === "ERR_HTTP2_ERROR") {
      return `what answers on ${host} is no svc daemon: does a start-up file of the shell there print something?`;
    }
    return words === ""
      ? `the connection to ${host} broke off`
      : `on ${host}: ${words.replace(/^svc: /, "")}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.duplex.destroy();
    this.#child.stderr.destroy();
    if (this.#child.exitCode === null) this.#child.kill();
    await Promise.race([this.#closed, setTimeout(endTimeoutMs, undefined, { ref: false })]);
  }
}

/**
 * What a program reads and writes, as one stream. It ends, and closes only when it is told to: Node's adapter between a stream and
 * HTTP/2 breaks the whole process over bytes that are written between the close of the stream and that of the session.
 */
class Piped extends Duplex {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;

  constructor(child: ChildProcessByStdio<Writable, Readable, Readable>) {
    super({ autoDestroy: false });
    this.#child = child;
    child.stdout.on("data", (bytes: Buffer) => {
      if (!this.push(bytes)) child.stdout.pause();
    });
    child.stdout.once("close", () => this.push(null));
    // That nobody takes the bytes any more shows in the end of what is read.
    child.stdin.on("error", () => undefined);
  }

  override _read(): void {
    this.#child.stdout.resume();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (this.#child.stdin.writable) this.#child.stdin.write(bytes, () => done());
    else done();
  }

  override _final(done: () => void): void {
    this.#child.stdin.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#child.stdin.destroy();
    this.#child.stdout.destroy();
    done(error);
  }
}

/** The last three lines. What is in them is the far side's: whoever prints them escapes them. */
function lastWords(text: string): string {
  return text
    .split(/\r?\n/)
    .filter((line) => line.trim() !== "")
    .slice(-3)
    .join("; ");
}
