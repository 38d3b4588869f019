/**
 * One pipe for stdout and stderr together, so that what a program writes to either arrives in the order of its writes.
 * Node's own "pipe" is a pair of sockets: two of them have no common order, and a socket cannot be opened again as
 * `/dev/stderr`, which scripts do. Node cannot call pipe(2), so it is a FIFO that loses its name at once.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, mkdtempSync, openSync, rmSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { RequestError } from "./request-error.mjs";

const { O_RDONLY, O_WRONLY, O_NONBLOCK } = constants;

/**
 * @typedef {object} MergedPipe
 * @property {Socket} readable Ends when the last writer has closed its end.
 * @property {number} writeFd To be handed down, and closed here then.
 */

/**
 * @returns {Promise<MergedPipe>}
 * @throws RequestError `COMMAND` when no FIFO can be made.
 */
export async function openMergedPipe() {
  // Private to the user: nobody else can open it while it has a name.
  const dir = mkdtempSync(join(tmpdir(), "svc-pipe-"));
  try {
    const path = join(dir, "pipe");
    await makeFifo(path);
    // Without O_NONBLOCK, opening a FIFO waits for its other end.
    const readFd = openSync(path, O_RDONLY | O_NONBLOCK);
    try {
      const writeFd = openSync(path, O_WRONLY);
      return { readable: new Socket({ fd: readFd, readable: true, writable: false }), writeFd };
    } catch (error) {
      closeSync(readFd);
      throw error;
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** @param {string} path */
async function makeFifo(path) {
  const child = spawn("mkfifo", ["-m", "600", path], { stdio: "ignore" });
  /** @type {unknown[]} */
  const [status] = await once(child, "exit").catch((/** @type {unknown} */ error) => {
    throw new RequestError("COMMAND", `needs the program mkfifo (${String(error)})`);
  });
  if (status !== 0) throw new RequestError("COMMAND", "no pipe can be made in the temporary directory");
}
