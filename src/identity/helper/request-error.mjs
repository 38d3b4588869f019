/** A failure with a word for the daemon: an errno name of the kernel's, or one of the words below. */
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
 * Whether an error is one of these errno names.
 * @param {unknown} error
 * @param {...string} codes
 */
export function hasCode(error, ...codes) {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}
