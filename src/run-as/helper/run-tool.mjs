/** Runs tools of the system in an open directory. */
import { reopen } from "./directory.mjs";
import { LastBytes } from "./output.mjs";
import { RequestError } from "./request-error.mjs";
import { runToEnd } from "./run-command.mjs";

const maxComplaintBytes = 4096;

/**
 * @typedef {Pick<import("./run-command.mjs").Streams, "stdin"> & { runId: string, umask?: number }} ToolOptions
 */

/**
 * @param {string[]} argv
 * @param {number} directory
 * @param {AbortSignal} signal
 * @param {ToolOptions} options
 * @throws RequestError `COMMAND` with the tool's last error output; ENOSPC
 */
export async function runTool(argv, directory, signal, { runId, umask = 0o022, ...streams }) {
  const complaints = new LastBytes(maxComplaintBytes);
  const { exitCode } = await runToEnd(
    { argv, cwd: reopen(directory), env: { LC_ALL: "C" }, umask, runId },
    { ...streams, stdout: () => undefined, stderr: (chunk) => complaints.push(chunk) },
    signal,
  );
  if (exitCode !== 0) throw toolFailure(argv[0] ?? "", complaints.bytes().toString());
}

/**
 * Makes an error from the last error output of a tool.
 * @param {string} tool
 * @param {string} complaints
 */
export function toolFailure(tool, complaints) {
  // tar(1) reports a short write without a reason; the next write would have failed with the reason.
  if (/No space left on device|Disk quota exceeded|: Wrote only \d+ of \d+ bytes/.test(complaints)) {
    return Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
  }
  const readable = complaints.replaceAll(/\/proc\/self\/fd\/\d+\/\.?/g, "").trim();
  return new RequestError("COMMAND", `${tool} failed: ${readable}`);
}
