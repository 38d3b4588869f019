/** Running test files in a separate process group, which is killed if it prints nothing for a while. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { parseTestPoint, titleOfFile, type TestPoint } from "./tap.ts";

/** The result of a file, or of several that one AVA process ran. */
export interface FileRun {
  files: readonly string[];
  /** In the Test Anything Protocol; a kill or an early exit is a failed test point. */
  tap: string;
}

interface FileRunOptions {
  /** `test/…/x.test.ts`; none if the command sets its test titles itself. */
  files: readonly string[];
  command: readonly string[];
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** Milliseconds without a line after which the file is taken to hang. */
  silenceMs: number;
  /** Called with each result, its title with the file before it. */
  onPoint: (point: TestPoint) => void;
  /** Called with each line of the protocol. */
  onLine: (line: string) => void;
}

const isPlan = /^1\.\.\d+$/;
const running = new Map<ChildProcess, string>();

/** The files in progress. */
export function runningFiles(): string[] {
  return [...running.values()];
}

/** Kills the process groups of all running files. */
export function endAll(): void {
  for (const child of running.keys()) endGroup(child);
}

/** Runs a file to its end, or until it hangs. */
export async function runFile(options: FileRunOptions): Promise<FileRun> {
  const { files, command, cwd, env, silenceMs, onPoint, onLine } = options;
  const [program = "", ...args] = command;
  // A separate group, so that a hanging run is killed completely.
  const child = spawn(program, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "inherit"] });
  running.set(child, files.join(" "));
  const exit = once(child, "close") as Promise<[number | null, NodeJS.Signals | null]>;
  const end = { isSilent: false, isComplete: false, hasFailed: false };
  const silence = setTimeout(() => {
    end.isSilent = true;
    endGroup(child);
  }, silenceMs);

  const name = titleOfFile(sharedPart(files));
  const lines: string[] = [];
  const keep = (line: string): void => {
    lines.push(line);
    onLine(line);
  };
  const take = (line: string): void => {
    const point = parseTestPoint(line);
    if (point !== undefined) {
      const title = name === "" ? point.title : `${name} › ${point.title}`;
      keep(line.replace(point.title, () => title));
      onPoint({ ...point, title });
      end.hasFailed ||= point.outcome === "failed";
    } else if (isPlan.test(line)) {
      end.isComplete = true;
    } else if (!line.startsWith("TAP version")) {
      keep(line);
    }
  };
  keep("TAP version 13");
  for await (const line of createInterface({ input: child.stdout })) {
    silence.refresh();
    take(line);
  }
  const [exitCode, signal] = await exit;
  clearTimeout(silence);
  running.delete(child);
  if (end.isSilent) take(`not ok 0 - it hangs: no output for ${String(silenceMs / 1000)} s`);
  else if (!end.isComplete || (exitCode !== 0 && !end.hasFailed))
    take(`not ok 0 - its runner ended early: ${signal ?? `exit code ${String(exitCode)}`}`);
  keep(`1..${String(lines.length)}`);
  return { files, tap: `${lines.join("\n")}\n` };
}

/** The part of titles that AVA omits: the file, or of several files their common folder. */
function sharedPart(files: readonly string[]): string {
  const [first = "", ...others] = files;
  if (others.length === 0) return first;
  const folders = first.split("/").slice(0, -1);
  const differs = folders.findIndex((_, at) =>
    others.some((other) => !other.startsWith(`${folders.slice(0, at + 1).join("/")}/`)),
  );
  return folders.slice(0, differs === -1 ? undefined : differs).join("/");
}

function endGroup({ pid, exitCode, signalCode }: ChildProcess): void {
  if (pid === undefined || exitCode !== null || signalCode !== null) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The process has ended.
  }
}
