/** From what a helper reports to the errors of the domain. */
import { SvcError, failedPrecondition, invalidField } from "../errors.ts";

/** A failure as the helper words it: an errno name or a word of `helper/request-error.mjs`. */
export interface HelperFailure {
  code: string;
  message: string;
  /** Which path of many it was, as its caller spells it. */
  subject?: string | undefined;
}

/**
 * @param failure What came over the wire; a user controls the helper's memory, so nothing about it is taken for granted.
 * @param subject What the request was about, for the sentence: a path relative to its root, a command.
 */
export function toSvcError(failure: unknown, subject: string): SvcError {
  const { code, message, subject: nearer = subject } = readFailure(failure);
  const cause = { code, message };
  const quoted = JSON.stringify(nearer);
  switch (code) {
    case "ENOENT":
      return new SvcError("not_found", "not_found", `${quoted} does not exist`, { cause });
    case "NO_COMMAND":
    case "NO_CWD":
      return new SvcError("not_found", "not_found", message, { cause });
    case "EEXIST":
      return new SvcError("already_exists", "already_exists", `${quoted} exists already`, { cause });
    case "EACCES":
    case "EPERM":
      return new SvcError(
        "permission_denied",
        "denied",
        `${quoted}: permission denied; check owner and mode of the files`,
        { cause },
      );
    case "EROFS":
      return new SvcError("permission_denied", "denied", `${quoted} lies on a read-only file system`, {
        cause,
      });
    case "ENOSPC":
    case "EDQUOT":
      return new SvcError(
        "resource_exhausted",
        "disk_full",
        `${quoted}: no space left; free some and try again`,
        {
          cause,
        },
      );
    case "LIMIT":
      return new SvcError("resource_exhausted", "too_many", `${quoted} ${message}`, { cause });
    case "EMFILE":
    case "ENFILE":
    case "ENOMEM":
    case "EAGAIN":
      return new SvcError("resource_exhausted", "too_many", `${quoted}: the system is short of resources`, {
        cause,
      });
    case "INVALID":
    case "EINVAL":
    case "ENAMETOOLONG":
      return invalidField("path", `${quoted} ${code === "INVALID" ? message : "is no valid path here"}`);
    case "SYMLINK":
    case "ELOOP":
      return failedPrecondition("denied", `${quoted}: symbolic links are not followed`, { cause });
    case "GUARDED":
      return new SvcError("permission_denied", "protected", `${quoted} ${message}`, { cause });
    case "CHANGED":
      return failedPrecondition("changed", `${quoted} ${message}; read it again`, { cause });
    case "EBUSY":
      return failedPrecondition("denied", `${quoted} is in use, as a mount point is`, { cause });
    case "EOPNOTSUPP":
    case "ENOTSUP":
    case "EXDEV":
    case "EMLINK":
    case "EFBIG":
    case "ENXIO":
    case "ETXTBSY":
      return failedPrecondition("denied", `${quoted} cannot be had from this file system (${code})`, {
        cause,
      });
    case "FOREIGN_LINK":
    case "WRONG_TYPE":
    case "MOVED":
      return failedPrecondition("denied", `${quoted} ${message}`, { cause });
    case "ENOTDIR":
      return failedPrecondition("denied", `${quoted}: a part of the path is no directory`, { cause });
    case "EISDIR":
      return failedPrecondition("denied", `${quoted} is a directory`, { cause });
    case "ENOTEMPTY":
      return failedPrecondition("denied", `${quoted} is not empty`, { cause });
    case "REFUSED":
      return failedPrecondition("archive_refused", `${quoted} ${message}`, { cause });
    case "DAMAGED":
      return new SvcError("data_loss", "archive_damaged", `${quoted} ${message}`, { cause });
    case "COMMAND":
      return failedPrecondition("denied", `${quoted}: ${message}`, { cause });
    default:
      return new SvcError("internal", "internal", `${quoted} failed (${code})`, { cause });
  }
}

function readFailure(failure: unknown): HelperFailure {
  const { code, message, subject } = (
    typeof failure === "object" && failure !== null ? failure : {}
  ) as Partial<Record<string, unknown>>;
  return {
    code: typeof code === "string" ? code.slice(0, 64) : "UNKNOWN",
    message: typeof message === "string" ? message.slice(0, 8192) : "failed",
    subject: typeof subject === "string" ? subject.slice(0, 8192) : undefined,
  };
}
