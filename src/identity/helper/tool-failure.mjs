/** What went wrong in a tool of the system, by its last complaints. */
import { RequestError } from "./request-error.mjs";

/**
 * @param {string} tool
 * @param {string} complaints
 */
export function toolFailure(tool, complaints) {
  // What fits of a write, tar(1) says without a reason: the next write would have had one.
  if (/No space left on device|Disk quota exceeded|: Wrote only \d+ of \d+ bytes/.test(complaints)) {
    return Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
  }
  const readable = complaints.replaceAll(/\/proc\/self\/fd\/\d+\/\.?/g, "").trim();
  return new RequestError("COMMAND", `${tool} failed: ${readable}`);
}
