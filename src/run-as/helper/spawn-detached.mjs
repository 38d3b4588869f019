/** Starts programs that outlive the helper and the daemon: supervisors. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { parseStat } from "../../sys/process-table.mjs";
import { at, inParent } from "./directory.mjs";
import { RequestError } from "./request-error.mjs";
import { spawnSession } from "./spawn.mjs";

const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants;

/**
 * @typedef {object} DetachedArgs
 * @property {string} [stdin] written to its standard input, which is then closed
 * @property {import("./directory.mjs").RootedPath} [log]
 */

/**
 * @param {import("./spawn.mjs").Program & DetachedArgs} args
 * @param {AbortSignal} signal
 * @returns {Promise<{ pid: number, startTicks: number }>}
 */
export async function spawnDetached({ stdin, log, ...program }, signal) {
  const logFd = log && (await openLog(log));
  try {
    const output = logFd ?? "ignore";
    const child = await spawnSession(program, [stdin === undefined ? "ignore" : "pipe", output, output]);
    const { pid } = child;
    if (pid === undefined) throw new RequestError("COMMAND", "has no process id");
    // Works also for a process that has exited, until it is reaped.
    const { startTicks } = parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"));
    child.unref();
    if (child.stdin) {
      const input = child.stdin;
      await new Promise((resolve, reject) => {
        input.once("error", () => reject(new RequestError("COMMAND", "exited before it had read its input")));
        signal.addEventListener("abort", () => {
          child.kill("SIGKILL");
          reject(new DOMException("canceled", "AbortError"));
        });
        input.end(stdin, () => resolve(undefined));
      });
    }
    return { pid, startTicks };
  } finally {
    if (logFd !== undefined) closeSync(logFd);
  }
}

/** @param {import("./directory.mjs").RootedPath} log */
async function openLog(log) {
  return inParent(log, (parent, name) => {
    // Without O_NONBLOCK, opening a FIFO would wait for a reader.
    const fd = openSync(
      at(parent, name),
      O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
      0o600,
    );
    if (fstatSync(fd).isFile()) return fd;
    closeSync(fd);
    throw new RequestError("WRONG_TYPE", "is not a regular file");
  });
}
