/** The operations of a helper: one entry per operation, from the arguments of a request to its response. */
import * as browser from "./archive/archive-browser.mjs";
import { ArchiveReader } from "./archive/archive-reader.mjs";
import { ArchiveWriter } from "./archive/archive-writer.mjs";
import { ByteSource } from "./archive/byte-source.mjs";
import { copyTree } from "./copy-tree.mjs";
import { inDirectory, reopen } from "./directory.mjs";
import * as files from "./files.mjs";
import { createHostOperations } from "./host/operations.mjs";
import { Syscalls } from "./host/syscalls.mjs";
import { measure } from "./measure.mjs";
import { LastBytes, LineSplitter } from "./output.mjs";
import { bytesTo } from "./progress.mjs";
import { readTail } from "./read-tail.mjs";
import { removeTree } from "./remove-tree.mjs";
import { runToEnd } from "./run-command.mjs";
import { killRuns } from "./kill-runs.mjs";
import { spawnDetached } from "./spawn-detached.mjs";

const readBlockBytes = 256 << 10;
/** Lines of output in one message: the daemon limits its structure, and a read can have 65,536 empty lines. */
const maxEmittedLines = 1_000;

/**
 * Encodes number, offset and length of each frame as doubles: an archive may have a hundred thousand frames, and the
 * daemon reads them at once.
 * @param {import("./archive/frame-cursor.mjs").FrameRow[]} frames
 */
function placesOf(frames) {
  const data = Buffer.alloc(frames.length * 24);
  for (const [index, { number, storedAt, length }] of frames.entries()) {
    data.writeDoubleLE(number, index * 24);
    data.writeDoubleLE(storedAt, index * 24 + 8);
    data.writeDoubleLE(length, index * 24 + 16);
  }
  return data;
}

/** @typedef {import("./directory.mjs").RootedPath} RootedPath */

/**
 * @typedef {object} Call Context of a request.
 * @property {Buffer} data raw bytes of the request
 * @property {import("./chunk-flow.mjs").ChunkInbox} input byte stream from the daemon
 * @property {(event: Record<string, unknown>) => Promise<void>} emit reports progress; resolves when there is space for
 *   more
 * @property {(bytes: Buffer, onWritten?: () => void) => Promise<void>} output streams bytes to the daemon; resolves
 *   when there is space for more. `onWritten` is called once the kernel has copied them and their memory is free; it
 *   may never be called
 * @property {AbortSignal} signal
 */

/** @typedef {{ value?: unknown, data?: Buffer }} Answer */

/**
 * @typedef {object} RunArgs
 * @property {string[]} argv
 * @property {string | RootedPath} cwd a `RootedPath` is entered without following symlinks
 * @property {Record<string, string>} env
 * @property {string} runId
 * @property {boolean} input whether standard input is streamed
 * @property {boolean} output whether standard output is streamed
 * @property {boolean} lines whether lines are reported as they arrive
 * @property {number} maxOutputBytes
 */

const syscalls = new Syscalls();

/** This table also types what the daemon sends and reads (`../helper-protocol.ts`). */
export const operations = {
  ...createHostOperations(syscalls),

  stat: async (/** @type {RootedPath} */ args) => ({ value: await files.stat(args) }),

  list: async (/** @type {RootedPath & { maxEntries: number }} */ args) => ({
    data: Buffer.from(JSON.stringify(await files.list(args))),
  }),

  readFile: async (
    /** @type {RootedPath & { maxBytes: number }} */ args,
    /** @type {Call} */ { signal },
  ) => ({
    data: await files.readFile(args, signal),
  }),

  writeFile: async (/** @type {RootedPath & { mode: number }} */ args, /** @type {Call} */ { data }) => {
    await files.writeFile(syscalls, args, data);
    return {};
  },

  makeDirs: async (/** @type {{ root: string, paths: string[] }} */ args, /** @type {Call} */ { signal }) => {
    await files.makeDirs(args, signal);
    return {};
  },

  rename: async (/** @type {{ root: string, from: string, to: string }} */ args) => {
    await files.rename(args);
    return {};
  },

  removeTree: async (/** @type {RootedPath} */ args, /** @type {Call} */ { signal }) => ({
    value: await removeTree(args, signal),
  }),

  measure: async (/** @type {{ root: string, paths: string[] }} */ args, /** @type {Call} */ { signal }) => ({
    value: await measure(args, signal),
  }),

  copyTree: async (
    /** @type {import("./copy-tree.mjs").CopyArgs} */ args,
    /** @type {Call} */ { emit, signal },
  ) => ({
    value: await copyTree(syscalls, args, (progress) => void emit({ progress }), signal),
  }),

  writeArchive: async (
    /** @type {import("./archive/archive-writer.mjs").WriteArchiveArgs} */ args,
    /** @type {Call} */ call,
  ) => {
    const writer = new ArchiveWriter(call.output, bytesTo(call));
    return { value: await writer.write(args, new ByteSource(call.input), call.signal) };
  },

  readArchive: async (
    /** @type {import("./archive/archive-reader.mjs").ReadArchiveArgs} */ args,
    /** @type {Call} */ call,
  ) => {
    const { input, output, signal } = call;
    const reader = new ArchiveReader(args, new ByteSource(input), output, signal, bytesTo(call));
    return { value: await reader.read() };
  },

  browseArchive: async (
    /** @type {Parameters<typeof browser.browse>[0]} */ args,
    /** @type {Call} */ { input },
  ) => {
    const { entries, more } = await browser.browse(args, new ByteSource(input));
    return { value: { more }, data: Buffer.from(JSON.stringify(entries)) };
  },

  locateInArchive: async (
    /** @type {Parameters<typeof browser.locate>[0]} */ args,
    /** @type {Call} */ { input },
  ) => {
    const { frames, ...value } = await browser.locate(args, new ByteSource(input));
    return { value, data: placesOf(frames) };
  },

  locateFileInArchive: async (
    /** @type {Parameters<typeof browser.locateFile>[0]} */ args,
    /** @type {Call} */ { input },
  ) => {
    const { frames, ...value } = await browser.locateFile(args, new ByteSource(input));
    return { value, data: placesOf(frames) };
  },

  readFileOfArchive: async (
    /** @type {Parameters<typeof browser.readFileOf>[0]} */ args,
    /** @type {Call} */ { input, output },
  ) => {
    await browser.readFileOf(args, new ByteSource(input), output);
    return {};
  },

  readTail: async (
    /** @type {{ root: string, files: string[], maxLines: number, maxBytes: number }} */ args,
    /** @type {Call} */ { signal },
  ) => {
    const { data, truncated } = await readTail(args, signal);
    return { value: { truncated }, data };
  },

  openRead: async (
    /** @type {RootedPath & { offset: number }} */ { offset, ...target },
    /** @type {Call} */ call,
  ) => {
    await using file = await files.openRegular(target);
    for (let position = offset; ;) {
      // Allocated once and reused, because sent bytes are not copied.
      const buffer = Buffer.allocUnsafe(readBlockBytes);
      const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
      if (bytesRead === 0) return {};
      await call.output(buffer.subarray(0, bytesRead));
      position += bytesRead;
    }
  },

  runCommand,

  spawnDetached: async (
    /** @type {import("./spawn.mjs").Program & import("./spawn-detached.mjs").DetachedArgs} */ args,
    /** @type {Call} */ { signal },
  ) => ({ value: await spawnDetached(args, signal) }),

  killRuns: async (/** @type {{ runIds: string[] }} */ { runIds }) => ({
    value: await killRuns(runIds),
  }),
};

/**
 * @param {RunArgs} args
 * @param {Call} call
 * @returns {Promise<Answer>}
 */
async function runCommand({ cwd, ...args }, call) {
  if (typeof cwd === "string") return runCommandIn({ ...args, cwd }, call);
  return inDirectory(cwd, (fd) => runCommandIn({ ...args, cwd: reopen(fd) }, call));
}

/**
 * @param {RunArgs & { cwd: string }} args
 * @param {Call} call
 * @returns {Promise<Answer>}
 */
async function runCommandIn({ input, output, lines, maxOutputBytes, ...program }, call) {
  const tails = { stdout: new LastBytes(maxOutputBytes), stderr: new LastBytes(maxOutputBytes) };
  const splitters = { stdout: new LineSplitter(), stderr: new LineSplitter() };
  const emitLines = async (/** @type {"stdout" | "stderr"} */ stream, /** @type {string[]} */ texts) => {
    for (let at = 0; lines && at < texts.length; at += maxEmittedLines)
      await call.emit({ stream, lines: texts.slice(at, at + maxEmittedLines) });
  };
  const take = (/** @type {"stdout" | "stderr"} */ stream) => async (/** @type {Buffer} */ chunk) => {
    tails[stream].push(chunk);
    if (lines) await emitLines(stream, splitters[stream].push(chunk));
  };
  const result = await runToEnd(
    program,
    {
      ...(input && { stdin: call.input }),
      stdout: output ? (chunk) => call.output(chunk) : take("stdout"),
      stderr: take("stderr"),
    },
    call.signal,
  );
  await emitLines("stdout", splitters.stdout.end());
  await emitLines("stderr", splitters.stderr.end());
  const stdout = tails.stdout.bytes();
  const stderr = tails.stderr.bytes();
  return {
    value: {
      ...result,
      stdoutBytes: stdout.length,
      truncated: tails.stdout.dropped || tails.stderr.dropped,
    },
    data: Buffer.concat([stdout, stderr]),
  };
}
