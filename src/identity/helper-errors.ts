/** From what a helper reports to the errors of the domain. */
import { SvcError, invalidField, notFound } from "../errors.ts";

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
      return notFound("file", nearer, `${quoted} does not exist`, cause);
    case "NO_COMMAND":
    case "NO_CWD":
      return notFound("command", nearer, message, cause);
    case "EEXIST":
      return new SvcError("already_exists", `${quoted} exists already`, { cause });
    case "EACCES":
    case "EPERM":
      return new SvcError("denied", `${quoted}: permission denied; check owner and mode of the files`, {
        cause,
      });
    case "EROFS":
      return new SvcError("denied", `${quoted} lies on a read-only file system`, {
        cause,
      });
    case "ENOSPC":
    case "EDQUOT":
      return new SvcError("disk_full", `${quoted}: no space left; free some and try again`, {
        cause,
      });
    case "LIMIT":
      return new SvcError("too_many", `${quoted} ${message}`, { cause });
    case "EMFILE":
    case "ENFILE":
    case "ENOMEM":
    case "EAGAIN":
      return new SvcError("too_many", `${quoted}: the system is short of resources`, {
        cause,
      });
    case "INVALID":
    case "EINVAL":
    case "ENAMETOOLONG":
      return invalidField("path", `${quoted} ${code === "INVALID" ? message : "is no valid path here"}`);
    case "SYMLINK":
    case "ELOOP":
      return new SvcError("not_possible", `${quoted}: symbolic links are not followed`, { cause });
    case "GUARDED":
      return new SvcError("protected", `${quoted} ${message}`, { cause });
    case "CHANGED":
      return new SvcError("changed", `${quoted} ${message}; read it again`, { cause });
    case "EBUSY":
      return new SvcError("not_possible", `${quoted} is in use, as a mount point is`, { cause });
    case "EOPNOTSUPP":
    case "ENOTSUP":
    case "EXDEV":
    case "EMLINK":
    case "EFBIG":
    case "ENXIO":
    case "ETXTBSY":
      return new SvcError("not_possible", `${quoted} cannot be had from this file system (${code})`, {
        cause,
      });
    case "FOREIGN_LINK":
    case "WRONG_TYPE":
    case "MOVED":
      return new SvcError("not_possible", `${quoted} ${message}`, { cause });
    case "ENOTDIR":
      return new SvcError("not_possible", `${quoted}: a part of the path is no directory`, { cause });
    case "EISDIR":
      return new SvcError("not_possible", `${quoted} is a directory`, { cause });
    case "ENOTEMPTY":
      return new SvcError("not_possible", `${quoted} is not empty`, { cause });
    case "REFUSED":
      return new SvcError("archive_refused", `${quoted} ${message}`, { cause });
    case "DAMAGED":
      return new SvcError("archive_damaged", `${quoted} ${message}`, { cause });
    case "COMMAND":
      return new SvcError("not_possible", `${quoted}: ${message}`, { cause });
    default:
      return new SvcError("internal", `${quoted} failed (${code})`, { cause });
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
