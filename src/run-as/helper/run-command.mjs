/** Runs a program with all its descendants until it exits. */
import { finished } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { OutputFlow } from "../../sys/output-flow.mjs";
import { runIdVariable } from "../../sys/run-cookie.mjs";
import { killRuns } from "./kill-runs.mjs";
import { hasCode } from "./request-error.mjs";
import { RunFamily } from "./run-family.mjs";
import { spawnSession } from "./spawn.mjs";

/** Milliseconds between SIGTERM and SIGKILL. */
const graceMs = 5_000;
/**
 * Milliseconds without output after which pipes count as drained once the last process has exited: other processes may
 * hold them open forever.
 */
const drainMs = 2_000;

/** @typedef {import("./spawn.mjs").Program} Program */
/** @typedef {import("node:child_process").ChildProcess} ChildProcess */

/**
 * @typedef {object} Streams
 * @property {AsyncIterable<Buffer>} [stdin]
 * @property {(chunk: Buffer) => void | Promise<void>} stdout the pipe is read further once it resolves
 * @property {(chunk: Buffer) => void | Promise<void>} stderr
 */

/**
 * Runs a program in its own session. Afterwards no process that it started is left.
 * @param {Program & { runId: string }} program
 * @param {Streams} streams
 * @param {AbortSignal} signal sends SIGTERM to the process group, SIGKILL 5 s later; then its reason is thrown
 * @returns {Promise<{ exitCode: number | null, signal: string | null }>}
 */
export async function runToEnd({ runId, ...program }, streams, signal) {
  signal.throwIfAborted();
  const { stdin } = streams;
  const child = await spawnSession({ ...program, env: { ...program.env, [runIdVariable]: runId } }, [
    stdin ? "pipe" : "ignore",
    "pipe",
    "pipe",
  ]);
  const ended = new AbortController();
  /** @type {Promise<{ exitCode: number | null, signal: string | null }>} */
  const exit = new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) {
      resolve({ exitCode: child.exitCode, signal: child.signalCode });
    } else {
      child.once("exit", (exitCode, signalName) => resolve({ exitCode, signal: signalName }));
    }
  });
  const family = child.pid === undefined ? undefined : new RunFamily(child.pid);
  const stop = () => {
    // The signal may orphan processes, which are then no longer descendants.
    family?.refresh();
    void terminate(child, ended.signal);
  };
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  // Not awaited: a program does not have to read its input, which then may never end.
  void feed(child, stdin);
  const flow = new OutputFlow();
  const reading = Promise.all([
    forward(child.stdout, flow.watched(streams.stdout)),
    forward(child.stderr, flow.watched(streams.stderr)),
  ]);
  // Handled below; must not count as unhandled until then.
  reading.catch(() => undefined);
  try {
    const result = await exit;
    ended.abort();
    signalGroup(child, "SIGKILL");
    await family?.kill();
    await killRuns([runId]);
    await Promise.race([reading, flow.ranDry(drainMs)]);
    signal.throwIfAborted();
    return result;
  } finally {
    signal.removeEventListener("abort", stop);
    child.stdin?.destroy();
    child.stdout?.destroy();
    child.stderr?.destroy();
  }
}

/**
 * @param {ChildProcess} child
 * @param {AbortSignal} ended
 */
async function terminate(child, ended) {
  signalGroup(child, "SIGTERM");
  try {
    await sleep(graceMs, undefined, { signal: ended });
    signalGroup(child, "SIGKILL");
  } catch {
    // The program has exited in time.
  }
}

/**
 * @param {ChildProcess} child
 * @param {NodeJS.Signals} signalName
 */
function signalGroup({ pid }, signalName) {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signalName);
  } catch (error) {
    if (!hasCode(error, "ESRCH", "EPERM")) throw error;
  }
}

/**
 * @param {ChildProcess} child
 * @param {AsyncIterable<Buffer> | undefined} chunks
 */
async function feed({ stdin }, chunks) {
  if (!stdin || !chunks) return;
  // A program does not have to read all its input.
  stdin.on("error", () => undefined);
  try {
    for await (const chunk of chunks) {
      if (stdin.destroyed) return;
      if (!stdin.write(chunk)) await Promise.race([once(stdin, "drain"), once(stdin, "close")]);
    }
    stdin.end();
    await finished(stdin);
  } catch {
    stdin.destroy();
  }
}

/**
 * @param {import("node:events").EventEmitter} emitter
 * @param {string} event
 */
function once(emitter, event) {
  return new Promise((resolve) => emitter.once(event, resolve));
}

/**
 * @param {import("node:stream").Readable | null} pipe
 * @param {(chunk: Buffer) => void | Promise<void>} take
 */
async function forward(pipe, take) {
  if (!pipe) return;
  try {
    for await (const chunk of /** @type {AsyncIterable<Buffer>} */ (pipe)) await take(chunk);
  } catch (error) {
    if (!hasCode(error, "ERR_STREAM_PREMATURE_CLOSE")) throw error;
  }
}
