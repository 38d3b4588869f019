/**
 * Commands of jobs, each below its own parent process (`job-parent.sh`). They do not use the user's helper, which short
 * requests need, and a command that kills its parent affects no other. The processes that end a command run as its
 * owner, never as root.
 */
import { randomUUID } from "node:crypto";
import { fchownSync } from "node:fs";
import type { Readable } from "node:stream";
import { SvcError } from "../errors.ts";
import { PosixSpawn, ProgramPipes } from "../sys/posix-spawn.ts";
import type { ExpectedCredentials } from "./helper/verify.mjs";
import type { Launch } from "./launch.ts";
import { OutputPace } from "./output-pace.ts";
import { statusLines } from "./status-lines.ts";

export interface JobCommand {
  /** For `/bin/sh -c`. */
  readonly command: string;
  /** Absolute; entered as the user. */
  readonly cwd: string;
  /** Added to the clean base environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Receives standard output and standard error, merged in the order of the writes. */
  readonly output: (bytes: Buffer) => void;
  /** Does not kill leftover processes, unless `signal` ends the command. */
  readonly keepChildren: boolean;
  /** Ends the command: SIGTERM for its group, SIGKILL 5 s later. */
  readonly signal: AbortSignal;
  /** Called when the parent has started the command, or could not. */
  readonly begun?: () => void;
}

export interface JobEnd {
  /** As in the shell's `$?`: 128 plus the signal's number if a signal ended the command. */
  readonly exitCode: number;
  /** Leftover processes of the command that were killed. */
  readonly leftProcesses: number;
}

/** Milliseconds to read remaining output after the last process has exited. */
const drainMs = 2_000;
/** Milliseconds from the request to end until the parent is considered unresponsive. Covers the grace period and the kills. */
const abandonMs = 20_000;
const maxStatusChars = 4_096;

export class JobProcesses {
  readonly #parentPath: string;
  readonly #pace = new OutputPace();
  #processes: PosixSpawn | undefined;

  /** @param parentPath of `job-parent.sh`, readable by every user */
  constructor(parentPath: string) {
    this.#parentPath = parentPath;
  }

  /** The arguments of the program that runs a command, to be launched as its user. */
  argv(expected: ExpectedCredentials, { command, cwd, env, keepChildren }: JobCommand): string[] {
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    const childrenRule = keepChildren ? "keep" : "end";
    const lines = statusLines(expected);
    return [
      "/bin/sh",
      this.#parentPath,
      ...lines,
      ".",
      randomUUID(),
      childrenRule,
      cwd,
      command,
      ...variables,
    ];
  }

  /**
   * Runs the command until it exits. Resolves also if the signal ended the command.
   * @throws SvcError `not_possible` if the process cannot run as the user; nothing was run in this case
   * @throws SvcError `unavailable` if the parent exited before the command
   */
  async run(launch: Launch, user: JobUser, { output, signal, begun }: JobCommand): Promise<JobEnd> {
    signal.throwIfAborted();
    const processes = (this.#processes ??= new PosixSpawn());
    using pipes = new ProgramPipes(processes);
    const [control, out, status] = [pipes.open("write"), pipes.open("read"), pipes.open("read")];
    const last = { text: "" };
    const outputEnded = this.#read(out.stream, (bytes) => {
      last.text = (last.text + bytes.toString("utf8")).slice(-maxStatusChars);
      output(bytes);
    });
    const report = { text: "" };
    status.stream.setEncoding("utf8").on("data", (text: string) => {
      if (report.text === "") begun?.();
      report.text = (report.text + text).slice(-maxStatusChars);
    });
    // Only the parent holds the other end.
    const parentEnded = ended(status.stream);
    control.stream.on("error", () => undefined);
    const pid = await start(processes, launch, user, [control.fd, out.fd, out.fd, status.fd]);
    pipes.closeProgramEnds();
    let giveUp: NodeJS.Timeout | undefined;
    const stop = (): void => {
      control.stream.write("\n");
      giveUp = setTimeout(() => process.kill(pid, "SIGKILL"), abandonMs).unref();
    };
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    await parentEnded;
    signal.removeEventListener("abort", stop);
    await processes.reap(pid);
    clearTimeout(giveUp);
    // Also ends what a killed parent has left behind.
    control.stream.end();
    await waitAtMost(drainMs, outputEnded);
    return readEnd(report.text, last.text, user.name);
  }

  async #read(readable: Readable, take: (bytes: Buffer) => void): Promise<void> {
    readable.on("data", (bytes: Buffer) => {
      take(bytes);
      this.#pace.count(readable, bytes.length);
    });
    await ended(readable);
  }
}

export interface JobUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** @param fds become descriptors 0 to 3 */
async function start(
  processes: PosixSpawn,
  { command, args, env }: Launch,
  { uid, gid, name }: JobUser,
  fds: readonly [number, number, number, number],
): Promise<number> {
  try {
    // The user who owns the pipe can open it again as `/dev/stdout`.
    fchownSync(fds[1], uid, gid);
    return await processes.start({ command, args, env, fds });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new SvcError("unavailable", `cannot act as user "${name}": ${why}`, {
      cause: error,
    });
  }
}

function readEnd(report: string, lastOutput: string, userName: string): JobEnd {
  const [, exitCode, remaining] = /^exit (\d+) (\d+)$/m.exec(report) ?? [];
  if (exitCode !== undefined) return { exitCode: Number(exitCode), leftProcesses: Number(remaining) };
  if (report.startsWith("begun")) {
    // Message of a shell that cannot create a process.
    if (/cannot fork/i.test(lastOutput)) {
      throw new SvcError(
        "not_possible",
        `cannot act as user "${userName}": the user's process limit is reached`,
      );
    }
    throw new SvcError(
      "unavailable",
      "the parent process of the command was killed before the command exited",
    );
  }
  const why =
    /^refused (.*)$/m.exec(report)?.[1] ?? (lastOutput.trim() || "the command could not be started");
  throw new SvcError("not_possible", `cannot act as user "${userName}": ${why}`);
}

async function ended(stream: Readable): Promise<void> {
  await new Promise<void>((resolve) => {
    stream.once("end", resolve);
    stream.once("close", resolve);
    stream.once("error", () => resolve());
  });
}

async function waitAtMost(ms: number, work: Promise<unknown>): Promise<void> {
  const tooLate = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => tooLate.resolve(undefined), ms);
  await Promise.race([work, tooLate.promise]);
  clearTimeout(timer);
}
