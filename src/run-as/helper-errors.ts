/** Converts errors of a helper into errors of the domain. */
import { SvcError, invalidField, notFound } from "../errors.ts";
import type { ErrorDetailReason } from "../../gen/svc/v1/values.ts";

/** An error as the helper sends it: an errno name or a code of `helper/request-error.mjs`. */
export interface HelperFailure {
  code: string;
  message: string;
  /** The path that failed, as the caller wrote it, if the request had several. */
  subject?: string | undefined;
}

/** The rest of a sentence that begins with the subject of the request. */
type Rest = string | ((failure: HelperFailure) => string);

const ownMessage: Rest = ({ message }) => ` ${message}`;

/** The reason and message of each code. */
const meanings: readonly (readonly [codes: readonly string[], reason: ErrorDetailReason, rest: Rest])[] = [
  [["EEXIST"], "already_exists", " exists already"],
  [["EACCES", "EPERM"], "denied", ": permission denied; check owner and mode of the files"],
  [["EROFS"], "denied", " is on a read-only file system"],
  [["ENOSPC", "EDQUOT"], "disk_full", ": no space left; free some and try again"],
  [["LIMIT"], "too_many", ownMessage],
  [["EMFILE", "ENFILE", "ENOMEM", "EAGAIN"], "too_many", ": the system is short of resources"],
  [["SYMLINK", "ELOOP"], "not_possible", ": symbolic links are not followed"],
  [["GUARDED"], "protected", ownMessage],
  [["CHANGED"], "changed", ({ message }) => ` ${message}; read it again`],
  [["EBUSY"], "not_possible", " is in use or a mount point"],
  [
    ["EOPNOTSUPP", "ENOTSUP", "EXDEV", "EMLINK", "EFBIG", "ENXIO", "ETXTBSY"],
    "not_possible",
    ({ code }) => ` is not supported by this file system (${code})`,
  ],
  [["FOREIGN_LINK", "WRONG_TYPE", "MOVED"], "not_possible", ownMessage],
  [["ENOTDIR"], "not_possible", ": a part of the path is not a directory"],
  [["EISDIR"], "not_possible", " is a directory"],
  [["ENOTEMPTY"], "not_possible", " is not empty"],
  [["REFUSED"], "archive_refused", ownMessage],
  [["DAMAGED"], "archive_damaged", ownMessage],
  [["COMMAND"], "not_possible", ({ message }) => `: ${message}`],
];
const otherwise: (typeof meanings)[number] = [[], "internal", ({ code }) => ` failed (${code})`];

/**
 * @param failure sent by the helper, whose memory the user controls: everything in it is checked
 * @param subject what the request was about, for the message: a path relative to its root, or a command
 */
export function toSvcError(failure: unknown, subject: string): SvcError {
  const known = readFailure(failure);
  const { code, message, subject: nearer = subject } = known;
  const cause = { code, message };
  const quoted = JSON.stringify(nearer);
  switch (code) {
    case "ENOENT":
      return notFound("file", nearer, `${quoted} does not exist`, cause);
    case "NO_COMMAND":
    case "NO_CWD":
      return notFound("command", nearer, message, cause);
    case "INVALID":
      return invalidField("path", `${quoted} ${message}`);
    case "EINVAL":
    case "ENAMETOOLONG":
      return invalidField("path", `${quoted} is not a valid path here`);
    default: {
      const [, reason, rest] = meanings.find(([codes]) => codes.includes(code)) ?? otherwise;
      return new SvcError(reason, quoted + (typeof rest === "string" ? rest : rest(known)), { cause });
    }
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
