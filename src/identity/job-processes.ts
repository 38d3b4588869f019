/**
 * Commands of jobs, each below a parent process of its own (`job-parent.sh`): they take no helper, which short questions
 * need, and one that kills its parent harms no other. What ends them runs with their owner's identity, never as root.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, fchownSync } from "node:fs";
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { SvcError, failedPrecondition } from "../errors.ts";
import { keepInheritedDescriptors, loadPipes, type Pipe } from "../lib/pipe.ts";
import type { ExpectedIdentity } from "./helper/verify.mjs";
import type { Launch } from "./launch.ts";
import { OutputPace } from "./output-pace.ts";

export interface JobCommand {
  /** For `/bin/sh -c`. */
  readonly command: string;
  /** Absolute; entered with the user's identity. */
  readonly cwd: string;
  /** Added to the clean base environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Takes standard output and standard error, merged in the order of the writes. */
  readonly output: (bytes: Buffer) => void;
  /** Leaves what the command leaves behind, unless it is ended by `signal`. */
  readonly keepChildren: boolean;
  /** Ends the command: SIGTERM for its group, SIGKILL 5 s later. */
  readonly signal: AbortSignal;
}

export interface JobEnd {
  /** As in the shell's `$?`: 128 and the signal's number for one that a signal ended. */
  readonly exitCode: number;
  /** Processes that the command left behind and that were ended. */
  readonly leftProcesses: number;
}

/** Milliseconds for the pipe to run dry after the last process has ended. */
const drainMs = 2_000;
/** Milliseconds from the end's being wanted to giving up on the parent: the grace and the sweep lie in between. */
const giveUpMs = 20_000;
const maxStatusChars = 4_096;

export class JobProcesses {
  readonly #parentPath: string;
  readonly #pace = new OutputPace();
  #openPipe: (() => Pipe) | undefined;

  /** @param parentPath of `job-parent.sh`, readable by every user */
  constructor(parentPath: string) {
    this.#parentPath = parentPath;
  }

  /** The program that runs a command, to be launched as its user. */
  argv(expected: ExpectedIdentity, { command, cwd, env, keepChildren }: JobCommand): string[] {
    const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
    const left = keepChildren ? "keep" : "end";
    const lines = statusLines(expected);
    return ["/bin/sh", this.#parentPath, ...lines, ".", randomUUID(), left, cwd, command, ...variables];
  }

  /**
   * Runs it to its end. One that was ended by the signal has an end, too.
   * @throws SvcError `failed_precondition` when the identity cannot be had: nothing was run then; `unavailable` when the
   *   parent came to an end before the command
   */
  async run(launch: Launch, user: JobUser, { output, signal }: JobCommand): Promise<JobEnd> {
    signal.throwIfAborted();
    this.#openPipe ??= prepare();
    const pipe = this.#openPipe();
    const last: { text: string } = { text: "" };
    const outputEnded = this.#read(pipe.readable, (bytes) => {
      last.text = (last.text + bytes.toString("utf8")).slice(-maxStatusChars);
      output(bytes);
    });
    try {
      const child = await start(launch, user, pipe.writeFd);
      const [control, status] = [child.stdio[0] as Writable, child.stdio[3] as Readable];
      control.on("error", () => undefined);
      const said = { text: "" };
      status.setEncoding("utf8").on("data", (text: string) => {
        said.text = (said.text + text).slice(-maxStatusChars);
      });
      const exited = once(child, "exit");
      const statusEnded = ended(status);
      const stop = (): void => {
        control.write("\n");
        setTimeout(() => child.kill("SIGKILL"), giveUpMs).unref();
      };
      signal.addEventListener("abort", stop, { once: true });
      if (signal.aborted) stop();
      await exited;
      signal.removeEventListener("abort", stop);
      // It also ends what a parent that was killed has left.
      control.end();
      await within(drainMs, Promise.all([outputEnded, statusEnded]));
      return readEnd(said.text, last.text, user.name);
    } finally {
      pipe.readable.destroy();
    }
  }

  async #read(readable: Socket, take: (bytes: Buffer) => void): Promise<void> {
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

function prepare(): () => Pipe {
  keepInheritedDescriptors();
  return loadPipes();
}

async function start(launch: Launch, { uid, gid, name }: JobUser, outputFd: number): Promise<ChildProcess> {
  try {
    // So that its owner can open it again as `/dev/stdout`.
    fchownSync(outputFd, uid, gid);
    const child = spawn(launch.command, launch.args, {
      cwd: "/",
      env: launch.env,
      stdio: ["pipe", outputFd, outputFd, "pipe"],
      detached: true,
    });
    await once(child, "spawn");
    return child;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new SvcError("unavailable", "unavailable", `cannot act as user "${name}": ${why}`, {
      cause: error,
    });
  } finally {
    closeSync(outputFd);
  }
}

/** What `/proc/self/status` says of a process that has the identity; see `identityMismatch`. */
function statusLines({ uid, gid, groups, dropped }: ExpectedIdentity): string[] {
  const four = (id: number): string => Array.from({ length: 4 }, () => id).join("\t");
  const ids = [`Uid:\t${four(uid)}`, `Gid:\t${four(gid)}`];
  if (!dropped) return ids;
  const all = [...new Set([...groups, gid])].sort((a, b) => a - b).join(" ");
  const sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map((set) => `${set}:\t${"0".repeat(16)}`);
  return [...ids, `Groups:\t${all}`, ...sets, "NoNewPrivs:\t1"];
}

function readEnd(said: string, lastOutput: string, userName: string): JobEnd {
  const [, exitCode, left] = /^exit (\d+) (\d+)$/m.exec(said) ?? [];
  if (exitCode !== undefined) return { exitCode: Number(exitCode), leftProcesses: Number(left) };
  if (said.startsWith("begun")) {
    throw new SvcError(
      "unavailable",
      "unavailable",
      "the process that runs the command was ended before the command was",
    );
  }
  const why = /^refused (.*)$/m.exec(said)?.[1] ?? (lastOutput.trim() || "it could not be started");
  throw failedPrecondition("denied", `cannot act as user "${userName}": ${why}`);
}

async function ended(stream: Readable): Promise<void> {
  await new Promise<void>((resolve) => {
    stream.once("end", resolve);
    stream.once("close", resolve);
    stream.once("error", () => resolve());
  });
}

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const tooLate = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => tooLate.resolve(undefined), ms);
  await Promise.race([work, tooLate.promise]);
  clearTimeout(timer);
}
