/** What went wrong in a tool of the system, by its last complaints. */
import { RequestError } from "./request-error.mjs";

/**
 * @param {string} tool
 * @param {string} complaints
 */
export function toolFailure(tool, complaints) {
  if (/No space left on device|Disk quota exceeded/.test(complaints)) {
    return Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
  }
  const readable = complaints.replaceAll(/\/proc\/self\/fd\/\d+\/\.?/g, "").trim();
  return new RequestError("COMMAND", `${tool} failed: ${readable}`);
}
