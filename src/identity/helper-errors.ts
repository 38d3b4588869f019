/** From what a helper reports to the errors of the domain. */
import { SvcError, invalidField, notFound } from "../errors.ts";
import type { ErrorDetailReason } from "../../gen/svc/v1/words.ts";

/** A failure as the helper words it: an errno name or a word of `helper/request-error.mjs`. */
export interface HelperFailure {
  code: string;
  message: string;
  /** Which path of many it was, as its caller spells it. */
  subject?: string | undefined;
}

/** How a sentence goes on that begins with what the request was about. */
type Rest = string | ((failure: HelperFailure) => string);

const said: Rest = ({ message }) => ` ${message}`;

/** What failures are to the domain. */
const meanings: readonly (readonly [codes: readonly string[], reason: ErrorDetailReason, rest: Rest])[] = [
  [["EEXIST"], "already_exists", " exists already"],
  [["EACCES", "EPERM"], "denied", ": permission denied; check owner and mode of the files"],
  [["EROFS"], "denied", " lies on a read-only file system"],
  [["ENOSPC", "EDQUOT"], "disk_full", ": no space left; free some and try again"],
  [["LIMIT"], "too_many", said],
  [["EMFILE", "ENFILE", "ENOMEM", "EAGAIN"], "too_many", ": the system is short of resources"],
  [["SYMLINK", "ELOOP"], "not_possible", ": symbolic links are not followed"],
  [["GUARDED"], "protected", said],
  [["CHANGED"], "changed", ({ message }) => ` ${message}; read it again`],
  [["EBUSY"], "not_possible", " is in use, as a mount point is"],
  [
    ["EOPNOTSUPP", "ENOTSUP", "EXDEV", "EMLINK", "EFBIG", "ENXIO", "ETXTBSY"],
    "not_possible",
    ({ code }) => ` cannot be had from this file system (${code})`,
  ],
  [["FOREIGN_LINK", "WRONG_TYPE", "MOVED"], "not_possible", said],
  [["ENOTDIR"], "not_possible", ": a part of the path is no directory"],
  [["EISDIR"], "not_possible", " is a directory"],
  [["ENOTEMPTY"], "not_possible", " is not empty"],
  [["REFUSED"], "archive_refused", said],
  [["DAMAGED"], "archive_damaged", said],
  [["COMMAND"], "not_possible", ({ message }) => `: ${message}`],
];
const otherwise: (typeof meanings)[number] = [[], "internal", ({ code }) => ` failed (${code})`];

/**
 * @param failure What came over the wire; a user controls the helper's memory, so nothing about it is taken for granted.
 * @param subject What the request was about, for the sentence: a path relative to its root, a command.
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
      return invalidField("path", `${quoted} is no valid path here`);
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
