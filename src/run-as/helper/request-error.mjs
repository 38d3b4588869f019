/** An error for the daemon: an errno name of the kernel, or one of the codes below. */
export class RequestError extends Error {
  /**
   * @param {"INVALID" | "SYMLINK" | "FOREIGN_LINK" | "GUARDED" | "CHANGED" | "WRONG_TYPE" | "LIMIT" | "MOVED" | "COMMAND" | "NO_COMMAND" | "NO_CWD" | "DAMAGED" | "REFUSED"} code
   * @param {string} message
   */
  constructor(code, message) {
    super(message);
    this.name = "RequestError";
    this.code = code;
  }
}

/**
 * Whether the code of an error is in this list of errno names.
 * @param {unknown} error
 * @param {...string} codes
 */
export function hasCode(error, ...codes) {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}
