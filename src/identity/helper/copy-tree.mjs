/**
 * Copies of trees. cp(1) does the work: reflinks, holes, hard links, times, extended attributes and copies within the kernel,
 * as fast as it gets. Both ends are handed to it as open directories, so no path is walked a second time.
 */
import { chmodSync, closeSync, fstatSync, mkdirSync, readFileSync, utimesSync } from "node:fs";
import { at, inDirectory, inParent, namesBelow, namesIn, openSubdirectory, reopen } from "./directory.mjs";
import { Measurement } from "./measure.mjs";
import { RequestError, hasCode } from "./request-error.mjs";
import { LastBytes } from "./output.mjs";
import { runToEnd } from "./run-command.mjs";
import { runInSlices } from "./slices.mjs";
import { toolFailure } from "./tool-failure.mjs";

const progressMs = 100;
const maxErrorBytes = 4096;

/** @typedef {import("./directory.mjs").Place} Place */

/**
 * @typedef {object} CopyArgs
 * @property {Place} from
 * @property {Place} to
 * @property {string[]} exclude Paths relative to `from`.
 * @property {string} runId
 */

/**
 * @param {CopyArgs} args
 * @param {(progress: { doneBytes: number, totalBytes?: number }) => void} report
 * @param {AbortSignal} signal
 * @returns {Promise<{ copiedBytes: number, entries: number }>}
 */
export async function copyTree({ from, to, exclude, runId }, report, signal) {
  const excluded = new Set(exclude.map((path) => namesBelow({ root: "/", path }).join("/")));
  if (excluded.has("")) throw new RequestError("INVALID", "the whole tree cannot be left out");
  return inDirectory(from, async (source) => {
    await makeTarget(to);
    return inDirectory(to, async (target) => {
      const measurement = new Measurement(excluded);
      /** @type {number | undefined} */
      let totalBytes;
      const failed = new AbortController();
      const either = AbortSignal.any([signal, failed.signal]);
      const measuring = runInSlices(measurement.directory(source), either).then(() => {
        totalBytes = measurement.allocatedBytes;
      });
      // A failure shows when it is awaited below.
      measuring.catch(() => undefined);
      try {
        await copy(source, target, excluded, runId, either, (doneBytes) =>
          report(
            totalBytes === undefined
              ? { doneBytes }
              : { doneBytes: Math.min(doneBytes, totalBytes), totalBytes },
          ),
        );
      } catch (error) {
        failed.abort(error);
        throw error;
      }
      await measuring;
      await runTool(["sync", "--file-system", "."], target, [], runId, signal);
      report({ doneBytes: measurement.allocatedBytes, totalBytes: measurement.allocatedBytes });
      return { copiedBytes: measurement.allocatedBytes, entries: measurement.entries };
    });
  });
}

/** @param {Place} to */
async function makeTarget(to) {
  if (namesBelow(to).length > 0) {
    await inParent(to, (parent, name) => {
      try {
        mkdirSync(at(parent, name), 0o700);
      } catch (error) {
        if (!hasCode(error, "EEXIST")) throw error;
      }
    });
  }
  await inDirectory(to, (fd) => {
    if (!namesIn(fd).next().done) throw new RequestError("WRONG_TYPE", "must be empty to be copied to");
  });
}

/**
 * @param {number} source
 * @param {number} target
 * @param {ReadonlySet<string>} excluded
 * @param {string} runId
 * @param {AbortSignal} signal
 * @param {(doneBytes: number) => void} report
 */
async function copy(source, target, excluded, runId, signal, report) {
  const options = ["-a", "--reflink=auto"];
  if (excluded.size === 0) {
    const argv = ["cp", ...options, "-T", "--", ".", "/proc/self/fd/3/."];
    await runTool(argv, source, [target], runId, signal, { report });
    return;
  }
  // What is copied comes on standard input: names of any bytes, any number of them.
  const argv = ["xargs", "-0", "-r", "cp", ...options, "--parents", "-t", "/proc/self/fd/3/.", "--"];
  await runTool(argv, source, [target], runId, signal, { report, stdin: wanted(source, "", excluded) });
  for (const path of excluded) makeWayTo(source, target, path.split("/").slice(0, -1));
  imitate(source, target);
}

/**
 * Makes the directories that lead to something excluded where nothing else in them was copied; all of them look like their
 * originals afterwards.
 * @param {number} source
 * @param {number} target
 * @param {string[]} names
 */
function makeWayTo(source, target, [name, ...rest]) {
  if (name === undefined) return;
  const from = subdirectory(source, name);
  if (from === undefined) return;
  try {
    try {
      mkdirSync(at(target, name), 0o700);
    } catch (error) {
      if (!hasCode(error, "EEXIST")) throw error;
    }
    const to = openSubdirectory(target, name);
    try {
      makeWayTo(from, to, rest);
      imitate(from, to);
    } finally {
      closeSync(to);
    }
  } finally {
    closeSync(from);
  }
}

/**
 * Gives a directory another one's mode and times (to the microsecond, which is what node can set).
 * @param {number} source
 * @param {number} target
 */
function imitate(source, target) {
  const { mode, atimeMs, mtimeMs } = fstatSync(source);
  chmodSync(reopen(target), mode & 0o7777);
  utimesSync(reopen(target), atimeMs / 1000, mtimeMs / 1000);
}

/**
 * The paths that are copied whole: siblings of what is excluded, and of the directories on the way to it.
 * @param {number} directory
 * @param {string} path
 * @param {ReadonlySet<string>} excluded
 * @returns {AsyncGenerator<Buffer, void, void>}
 */
async function* wanted(directory, path, excluded) {
  for (const name of namesIn(directory)) {
    const child = path + name;
    if (excluded.has(child)) continue;
    const leadsToExcluded = [...excluded].some((other) => other.startsWith(`${child}/`));
    if (!leadsToExcluded) {
      yield Buffer.from(`./${child}\0`, "latin1");
      continue;
    }
    const fd = subdirectory(directory, name);
    if (fd === undefined) {
      yield Buffer.from(`./${child}\0`, "latin1");
      continue;
    }
    try {
      yield* wanted(fd, `${child}/`, excluded);
    } finally {
      closeSync(fd);
    }
  }
}

/**
 * @param {number} parent
 * @param {string} name
 */
function subdirectory(parent, name) {
  try {
    return openSubdirectory(parent, name);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "SYMLINK")) return undefined;
    throw error;
  }
}

/**
 * Runs a tool of the system in an open directory.
 * @param {string[]} argv
 * @param {number} directory
 * @param {number[]} descriptors
 * @param {string} runId
 * @param {AbortSignal} signal
 * @param {{ report?: (doneBytes: number) => void, stdin?: AsyncIterable<Buffer> }} [options]
 * @throws RequestError `COMMAND` with the last of its complaints.
 */
async function runTool(argv, directory, descriptors, runId, signal, { report, stdin } = {}) {
  const complaints = new LastBytes(maxErrorBytes);
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  try {
    const { exitCode } = await runToEnd(
      { argv, cwd: reopen(directory), env: { LC_ALL: "C" }, umask: 0o022, runId },
      {
        ...(stdin && { stdin }),
        stdout: () => undefined,
        stderr: (chunk) => complaints.push(chunk),
        descriptors,
        started: (pid) => {
          if (report) timer = setInterval(() => report(writtenBytes(pid)), progressMs);
        },
      },
      signal,
    );
    if (exitCode !== 0) throw toolFailure(argv[0] ?? "", complaints.bytes().toString());
  } finally {
    clearInterval(timer);
  }
}

/**
 * What a process and its children have written so far, by the kernel's count.
 * @param {number} pid
 * @returns {number}
 */
function writtenBytes(pid) {
  try {
    const written = /^wchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "latin1"));
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "latin1").trim();
    const own = Number(written?.[1] ?? 0);
    return children.split(" ").reduce((sum, child) => (child ? sum + writtenBytes(Number(child)) : sum), own);
  } catch {
    return 0;
  }
}
