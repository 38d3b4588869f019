/** Running test files in a process group of their own, which is ended when it says nothing any more. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { parseTestPoint, summarizeTap, titleOfFile, type TestPoint } from "./tap.ts";

/** What became of a file, or of several that one AVA ran. */
export interface FileRun {
  files: readonly string[];
  /** In the Test Anything Protocol; that it was ended, or ended early, is a failed point. */
  tap: string;
  /** Each failure with all that is said of it, line by line. */
  failures: readonly string[];
}

interface FileRunOptions {
  /** `test/…/x.test.ts`; none where the command titles its tests itself. */
  files: readonly string[];
  command: readonly string[];
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** Milliseconds without a line after which the file is taken to hang. */
  silenceMs: number;
  /** Hears each result when it comes, its title with the file before it. */
  onPoint: (point: TestPoint) => void;
  /** Hears each line of the protocol when it comes. */
  onLine: (line: string) => void;
}

const isPlan = /^1\.\.\d+$/;
const running = new Map<ChildProcess, string>();

/** The files that are being run. */
export function runningFiles(): string[] {
  return [...running.values()];
}

/** Ends the process groups of all that run. */
export function endAll(): void {
  for (const child of running.keys()) endGroup(child);
}

/** Runs a file to its end, or until it hangs. */
export async function runFile(options: FileRunOptions): Promise<FileRun> {
  const { files, command, cwd, env, silenceMs, onPoint, onLine } = options;
  const [program = "", ...args] = command;
  // A group of its own, so that what hangs goes as a whole.
  const child = spawn(program, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "inherit"] });
  running.set(child, files.join(" "));
  const exit = once(child, "close") as Promise<[number | null, NodeJS.Signals | null]>;
  const end = { isSilent: false, isWhole: false };
  const silence = setTimeout(() => {
    end.isSilent = true;
    endGroup(child);
  }, silenceMs);

  const name = titleOfFile(sharedPart(files));
  const lines: string[] = [];
  const failures: string[][] = [];
  let failure: string[] | undefined;
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
      failure = point.outcome === "failed" ? [`  ${title}`] : undefined;
      if (failure !== undefined) failures.push(failure);
    } else if (isPlan.test(line)) {
      end.isWhole = true;
      failure = undefined;
    } else if (!line.startsWith("TAP version")) {
      keep(line);
      failure?.push(`  ${line}`);
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
  if (end.isSilent) take(`not ok 0 - it hangs: nothing was heard of it for ${String(silenceMs / 1000)} s`);
  else if (!end.isWhole || (exitCode !== 0 && failures.length === 0))
    take(`not ok 0 - its runner ended early: ${signal ?? `exit code ${String(exitCode)}`}`);
  keep(`1..${String(lines.length)}`);
  return {
    files,
    tap: `${lines.join("\n")}\n`,
    failures: failures.map((each) => each.join("\n")),
  };
}

/** What failed in a run and passed when its files were run again. */
export function unsteadyOf(first: FileRun, again: readonly FileRun[]): string[] {
  const { points } = summarizeTap(again.map(({ tap }) => tap).join(""));
  const outcomes = new Map(points.map(({ title, outcome }) => [title, outcome]));
  // That a run hangs or dies is no test's, and the whole of it has to pass.
  const isWhole = again.every(({ failures }) => failures.length === 0);
  return first.failures.filter((failure) => {
    const [title = ""] = failure.split("\n", 1);
    return isWhole || outcomes.get(title.trim()) === "passed";
  });
}

/** What AVA leaves out of the titles: the file, or of several the folder that all are in. */
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
    // Gone meanwhile.
  }
}
