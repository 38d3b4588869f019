/**
 * A daemon behind ssh, reached by `svc dial-stdio` on the remote host: no port is opened, and the remote
 * kernel identifies the user. Uses the installed ssh with the user's configuration, keys and known hosts.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { Duplex, type Readable, type Writable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import { sshTarget, type NodeAddress } from "./address.ts";
import { connectTimeoutMs, type RemoteStream } from "./remote-stream.ts";

export type SshAddress = Extract<NodeAddress, { kind: "ssh" }>;

export interface SshOptions {
  /** The program with its leading arguments. */
  readonly command: readonly string[];
  /** Values of `-o`. */
  readonly options: readonly string[];
}

/** Bytes to keep of the last error output from ssh and the remote side. */
const maxErrorBytes = 4096;
/** Milliseconds for ssh to exit by itself after its streams have ended. */
const endTimeoutMs = 2_000;

/** Arguments of ssh. The address was checked; `--` ends the options as a second safeguard. */
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

export function openSsh(address: SshAddress, { command, options }: SshOptions): RemoteStream {
  const [program = "ssh", ...first] = command;
  // A separate session, so that Ctrl-C reaches only svc, which may have to clean up over this connection.
  const child = spawn(program, [...first, ...sshArguments(address, options)], {
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  return new SshStream(address, program, child);
}

class SshStream implements RemoteStream {
  readonly duplex: Duplex;
  readonly #address: SshAddress;
  readonly #program: string;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #closed: Promise<void>;
  #errorOutput: Buffer = Buffer.alloc(0);
  #startFailure: Error | undefined;

  constructor(
    address: SshAddress,
    program: string,
    child: ChildProcessByStdio<Writable, Readable, Readable>,
  ) {
    this.#address = address;
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
      this.#errorOutput = Buffer.concat([this.#errorOutput, bytes]).subarray(-maxErrorBytes);
    });
    this.duplex = new ChildStream(child);
  }

  async failure(cause?: unknown): Promise<SvcError> {
    await Promise.race([this.#closed, setTimeout(endTimeoutMs, undefined, { ref: false })]);
    return new SvcError("unavailable", this.#sentence(cause), { cause });
  }

  #sentence(cause: unknown): string {
    const [{ host }, code] = [this.#address, this.#child.exitCode];
    if (this.#startFailure !== undefined) {
      return `${this.#program} cannot be run to reach ${host}: install an ssh client, or set SVC_SSH`;
    }
    const words = lastLines(this.#errorOutput.toString("utf8"));
    if (code === 127 || code === 126) {
      return `svc was not found on ${host}: install it there, in the PATH of non-interactive shells (${words})`;
    }
    if (code === 255) {
      const next = words.includes("Host key verification failed")
        ? `; check and accept its key once with: ssh ${sshTarget(this.#address)}`
        : "";
      const reason = words === "" ? "no error message" : words;
      return `ssh cannot reach ${host}: ${next === "" ? reason : reason.replace(/\.$/, "")}${next}`;
    }
    if ((cause as NodeJS.ErrnoException | undefined)?.code === "ERR_HTTP2_ERROR") {
      return `the response from ${host} is not from svc: check whether a shell start-up file there prints something`;
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
 * A child's output and input as one stream. It ends, but closes only on request: Node's adapter between
 * streams and HTTP/2 crashes the process if bytes are written after the stream has closed and before the
 * session has.
 */
class ChildStream extends Duplex {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;

  constructor(child: ChildProcessByStdio<Writable, Readable, Readable>) {
    super({ autoDestroy: false });
    this.#child = child;
    child.stdout.on("data", (bytes: Buffer) => {
      if (!this.push(bytes)) child.stdout.pause();
    });
    child.stdout.once("close", () => this.push(null));
    // A closed input is noticed as the end of the output.
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

/** The last three lines of output. They come from the remote side and must be escaped before printing. */
function lastLines(text: string): string {
  return text
    .split(/\r?\n/)
    .filter((line) => line.trim() !== "")
    .slice(-3)
    .join("; ");
}
