/**
 * Runs a program on private copies of files, as a uid of its own: whatever the files make it do, the kernel lets it read
 * only the copies and what every user of the host may read.
 */
import { join } from "node:path";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import { shellWord } from "../lib/shell-word.ts";
import { ProgramPipes, type PosixSpawn } from "../sys/posix-spawn.ts";
import { LastBytes } from "./helper/output.mjs";
import type { ExpectedCredentials } from "./helper/verify.mjs";
import type { Launch } from "./launch.ts";
import { canceledBy } from "./pending-request.ts";
import { statusLines } from "./status-lines.ts";
import { processesOf } from "./unused-uid.ts";
import type { CommandResult, RunCommandOptions } from "./user-helper-types.ts";

/** With threads; programs written in Go start one per CPU. */
const maxProcesses = 512;
const defaultTimeoutMs = 60_000;
const defaultOutputBytes = 1 << 20;
/** Rounds of killing what a program left: the kernel may need a moment to end it. */
const maxKillRounds = 100;
const killRoundMs = 10;

/** The options of a user's command that an isolated one supports. */
export type IsolatedOptions = Pick<RunCommandOptions, "env" | "maxOutputBytes" | "timeoutMs" | "signal"> & {
  /** Absolute. */
  readonly cwd?: string;
  readonly stdin?: Uint8Array;
};

export interface ContainedLaunch extends Launch {
  /** Whether it runs in a PID namespace, so that the kernel kills all that it starts. */
  readonly isContained: boolean;
}

export interface IsolatedRunOptions {
  /** The directory of the copies. */
  readonly directory: string;
  readonly expected: ExpectedCredentials;
  /** `isolated-run.sh`, readable by every user. */
  readonly scriptPath: string;
  readonly processes: PosixSpawn;
  /** @param where `host`: outside of the PID namespace of the program */
  readonly launch: (argv: readonly string[], where?: "host") => Promise<ContainedLaunch>;
  /** Removes the copies. */
  readonly remove: () => Promise<void>;
}

/** Copies of files, and the uid that may read them. */
export class IsolatedRun implements AsyncDisposable {
  readonly directory: string;
  readonly #options: IsolatedRunOptions;

  constructor(options: IsolatedRunOptions) {
    this.directory = options.directory;
    this.#options = options;
  }

  /** The copy of a file or directory. @param path absolute */
  copyOf(path: string): string {
    return join(this.directory, path);
  }

  /** Runs a program as {@link UserHelper.runCommand} does. Afterwards no process of its uid is left. */
  async runCommand(
    argv: readonly string[],
    { cwd = "/", env = {}, stdin, signal, ...bounds }: IsolatedOptions = {},
  ): Promise<CommandResult> {
    const subject = argv[0] ?? "";
    if (signal?.aborted) throw canceledBy(signal, subject);
    const { expected, processes, launch, scriptPath } = this.#options;
    const limit = expected.dropped ? String(maxProcesses) : "-";
    const program = await launch(["/bin/sh", scriptPath, ...statusLines(expected), ".", limit, cwd, ...argv]);
    const maxBytes = bounds.maxOutputBytes ?? defaultOutputBytes;
    using pipes = new ProgramPipes(processes);
    const [out, err, variables] = [pipes.open("read"), pipes.open("read"), pipes.open("write")];
    const input = pipes.open("write");
    for (const { stream } of [out, err, variables, input]) stream.on("error", () => undefined);
    const pid = await processes.start({ ...program, fds: [input.fd, out.fd, err.fd, variables.fd] });
    pipes.closeProgramEnds();
    const failed = Promise.withResolvers<never>();
    failed.promise.catch(() => undefined);
    const abort = (): void => failed.reject(canceledBy(signal, subject));
    const timeoutMs = bounds.timeoutMs ?? defaultTimeoutMs;
    const timer = setTimeout(
      () =>
        failed.reject(new SvcError("deadline_exceeded", `${subject}: not finished within ${timeoutMs} ms`)),
      timeoutMs,
    );
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) abort();
    let isReaped = false;
    try {
      variables.stream.end(assignments(env));
      input.stream.end(stdin ?? "");
      const outputs = Promise.all([tailOf(out.stream, maxBytes), tailOf(err.stream, maxBytes)]);
      const [stdout, stderr] = await Promise.race([outputs, failed.promise]);
      const exitCode = await Promise.race([processes.reap(pid), failed.promise]);
      isReaped = true;
      return {
        exitCode: exitCode ?? null,
        signal: null,
        ...{ stdout: stdout.text, stderr: stderr.text, truncated: stdout.isCut || stderr.isCut },
      };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      // A reaped PID may be another process's.
      if (!isReaped) {
        kill(-pid);
        await processes.reap(pid);
      }
      if (expected.dropped) await this.#killRest(program);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#options.remove();
  }

  /** Kills all processes of the uid, which is only for this run. @throws Error if one remains */
  async #killRest({ isContained }: ContainedLaunch): Promise<void> {
    const { uid } = this.#options.expected;
    // A list of processes can miss one that replaces itself.
    if (!isContained) await this.#killAll();
    for (let round = 0; (await processesOf(uid)).length > 0; round += 1) {
      if (round === maxKillRounds) throw new Error(`processes of the unused uid ${uid} cannot be killed`);
      await this.#killAll();
      await sleep(killRoundMs);
    }
  }

  /** Kills all processes of the uid at once, as that uid. */
  async #killAll(): Promise<void> {
    const { expected, processes, launch, scriptPath } = this.#options;
    const argv = [...statusLines(expected), ".", "-", "/", "sh", "-c", "kill -s KILL -- -1"];
    await processes.run(await launch(["/bin/sh", scriptPath, ...argv], "host"));
  }
}

/** @param pid negative: a process group */
function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // The process has exited.
  }
}

/** Shell syntax that exports the variables with a name that a shell accepts. */
function assignments(env: Readonly<Record<string, string>>): string {
  return Object.entries(env)
    .filter(([name]) => /^[A-Za-z_]\w*$/.test(name))
    .map(([name, value]) => `export ${name}=${shellWord(value)}\n`)
    .join("");
}

/** The last bytes of a stream. */
async function tailOf(stream: Readable, maxBytes: number): Promise<{ text: string; isCut: boolean }> {
  const last = new LastBytes(maxBytes);
  for await (const piece of stream as AsyncIterable<Buffer>) last.push(piece);
  const text = last.bytes().toString();
  return { text, isCut: last.dropped };
}
