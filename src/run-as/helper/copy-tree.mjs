/**
 * Copies trees with cp(1): reflinks, holes, hard links, times, extended attributes, and copies within the kernel. Both
 * ends are passed as open directories, so no path is walked a second time.
 */
import { chmodSync, fstatSync, mkdirSync, readFileSync, utimesSync } from "node:fs";
import {
  at,
  ownedFd,
  inDirectory,
  inParent,
  namesBelow,
  namesIn,
  openSubdirectory,
  reopen,
} from "./directory.mjs";
import { Measurement } from "./measure.mjs";
import { RequestError, hasCode } from "./request-error.mjs";
import { runTool } from "./run-tool.mjs";
import { runInSlices } from "./slices.mjs";

const progressMs = 100;

/** @typedef {import("./directory.mjs").Place} Place */

/**
 * @typedef {object} CopyArgs
 * @property {Place} from
 * @property {Place} to
 * @property {string[]} exclude paths relative to `from`
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
  if (excluded.has("")) throw new RequestError("INVALID", "must not exclude the whole tree");
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
      // The rejection is handled where it is awaited below.
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
      await runTool(["sync", "--file-system", "."], target, signal, { runId });
      report({ doneBytes: measurement.allocatedBytes, totalBytes: measurement.allocatedBytes });
      return { copiedBytes: measurement.allocatedBytes, entries: measurement.entries };
    });
  });
}

/** @param {Place} to */
async function makeTarget(to) {
  if (namesBelow(to).length > 0) await inParent(to, makeUnlessThere);
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
  const cp = ["cp", "-a", "--reflink=auto"];
  if (excluded.size === 0) {
    const argv = [...cp, "-T", "--", ".", "/proc/self/fd/3/."];
    await runCounted(argv, source, signal, { runId, descriptors: [target] }, report);
    return;
  }
  // The paths come on standard input: names may contain any bytes, and there may be any number.
  const argv = ["xargs", "-0", "-r", ...cp, "--parents", "-t", "/proc/self/fd/3/.", "--"];
  const options = { runId, descriptors: [target], stdin: wanted(source, "", excluded) };
  await runCounted(argv, source, signal, options, report);
  for (const path of excluded) makeWayTo(source, target, path.split("/").slice(0, -1));
  imitate(source, target);
}

/**
 * Creates the directories on the way to an excluded path, if nothing else in them was copied, and gives all of them the
 * attributes of the originals.
 * @param {number} source
 * @param {number} target
 * @param {string[]} names
 */
function makeWayTo(source, target, [name, ...rest]) {
  if (name === undefined) return;
  using from = subdirectory(source, name);
  if (from === undefined) return;
  makeUnlessThere(target, name);
  using to = ownedFd(openSubdirectory(target, name));
  makeWayTo(from.fd, to.fd, rest);
  imitate(from.fd, to.fd);
}

/**
 * @param {number} parent
 * @param {string} name
 */
function makeUnlessThere(parent, name) {
  try {
    mkdirSync(at(parent, name), 0o700);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

/**
 * Copies mode and times of a directory. Node can set times only to the microsecond.
 * @param {number} source
 * @param {number} target
 */
function imitate(source, target) {
  const { mode, atimeMs, mtimeMs } = fstatSync(source);
  chmodSync(reopen(target), mode & 0o7777);
  utimesSync(reopen(target), atimeMs / 1000, mtimeMs / 1000);
}

/**
 * Yields the paths that are copied as a whole: siblings of excluded paths, and of the directories on the way to them.
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
    using below = leadsToExcluded ? subdirectory(directory, name) : undefined;
    if (below === undefined) yield Buffer.from(`./${child}\0`, "latin1");
    else yield* wanted(below.fd, `${child}/`, excluded);
  }
}

/**
 * @param {number} parent
 * @param {string} name
 */
function subdirectory(parent, name) {
  try {
    return ownedFd(openSubdirectory(parent, name));
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "SYMLINK")) return undefined;
    throw error;
  }
}

/**
 * @param {string[]} argv
 * @param {number} directory
 * @param {AbortSignal} signal
 * @param {import("./run-tool.mjs").ToolOptions} options
 * @param {(doneBytes: number) => void} report receives the bytes written so far
 */
async function runCounted(argv, directory, signal, options, report) {
  /** @type {NodeJS.Timeout | undefined} */
  let timer;
  const started = (/** @type {number} */ pid) => {
    timer = setInterval(() => report(writtenBytes(pid)), progressMs);
  };
  try {
    await runTool(argv, directory, signal, { ...options, started });
  } finally {
    clearInterval(timer);
  }
}

/**
 * Bytes that a process and its children have written so far, as counted by the kernel.
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
