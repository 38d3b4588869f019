/** Errors as the command line shows them: one sentence with the next step, and the exit code. */
import {
  hasOwnSubject,
  sentenceOf,
  SvcError,
  type FieldViolation,
  type ReasonPayloads,
} from "../../errors.ts";
import { snakeCase } from "../../lib/snake-case.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";
import { escapeControls, escapeLines } from "./escape.ts";
import { UnreachableError } from "../client/http.ts";

/** The command line is wrong. The message names the flag or argument. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UsageError";
  }
}

/** A file on the command line cannot be used. The command's help would not explain that. */
export class UnusableFileError extends UsageError {}

/** Printed after usage errors. @param command such as `svc logs` */
export function helpHint(command: string): string {
  return `Try: ${command} --help`;
}

/**
 * Whether the help could explain the error: the line is wrong, and the message names neither an option nor a
 * command.
 */
export function needsHelp(error: unknown): boolean {
  if (error instanceof UnusableFileError) return false;
  return error instanceof UsageError && !/(^|\s)(--|svc )/.test(error.message);
}

/** Some of several actions failed. Each failure was already reported. */
export class ReportedError extends Error {
  readonly exitCode: number;

  constructor(exitCode: number) {
    super("already reported");
    this.name = "ReportedError";
    this.exitCode = exitCode;
  }
}

/** The daemon's configuration is wrong; starting it again fails in the same way. */
export class MisconfiguredError extends SvcError {
  constructor(error: SvcError) {
    super(error.reason, error.message, { payload: error.payload, cause: error });
    this.name = "MisconfiguredError";
  }
}

/** An error whose message already includes the next step. */
export class AdvisedError extends SvcError {
  constructor(error: SvcError, message: string) {
    super(error.reason, message, { payload: error.payload, cause: error });
    this.name = "AdvisedError";
  }
}

/** A person answered a question with no. */
export class DeclinedError extends SvcError {
  constructor() {
    super("not_possible", "nothing was changed");
    this.name = "DeclinedError";
  }
}

/** The error as an SvcError, if it is one. */
export function asSvcError(error: unknown): SvcError | undefined {
  return error instanceof SvcError ? (error as SvcError) : undefined;
}

/** The result, or undefined if it is not found. */
export async function ifFound<T>(lookup: Promise<T>): Promise<T | undefined> {
  try {
    return await lookup;
  } catch (error) {
    if (asSvcError(error)?.reason === "not_found") return undefined;
    throw error;
  }
}

export interface Failure {
  readonly exitCode: number;
  /** One sentence, without control characters. Empty: print nothing. */
  readonly message: string;
  /** The last output of a failed command, one entry per line. */
  readonly details: readonly string[];
}

/**
 * @param app the app of the command, for the suggested command
 * @param start how to start a daemon if none is reachable
 */
export function describeFailure(error: unknown, app?: string, start = "svc daemon"): Failure {
  if (error instanceof ReportedError) return { exitCode: error.exitCode, message: "", details: [] };
  if (error instanceof UsageError) {
    return { exitCode: exitCodes.usage, message: escapeControls(error.message), details: [] };
  }
  const known = asSvcError(error);
  if (known === undefined) {
    const message = error instanceof Error ? error.message : String(error);
    return { exitCode: exitCodes.failed, message: escapeLines(message), details: [] };
  }
  const next = nextStep(known, app === undefined ? undefined : escapeControls(app), start);
  const message = `${escapeControls(withSettingNames(known))}${next}`;
  const exitCode = known instanceof MisconfiguredError ? exitCodes.misconfigured : exitCodeOf(known.code);
  return { exitCode, message, details: lastLines(known).map(escapeControls) };
}

/** The message with the names that people know: `port must be …` for `values.port must be …`. */
function withSettingNames({ reason, message, payload }: SvcError): string {
  if (reason !== "invalid_request") return message;
  const { violations = [] } = (payload ?? {}) as Partial<ReasonPayloads["invalid_request"]>;
  return violations.reduce<string>(
    (text, violation) => text.replace(sentenceOf(violation), () => sentenceOf(inKnownNames(violation))),
    message,
  );
}

/** A setting without the request's field, such as `values.port`; a sentence about an entry without `storages[0]`. */
function inKnownNames({ field = "", description = "" }: FieldViolation): FieldViolation {
  const known = field.replace(/^action\.type$/, "action").replace(/^(?:values|action)\./, "");
  return { field: hasOwnSubject(description) ? known.replace(/^\w+\[\d+\]$/, "") : known, description };
}

interface Advice {
  /** The words between the error message and the command. */
  readonly words: string;
  readonly command: string;
  /** Whether the command takes the app that the error is about. */
  readonly takesApp?: boolean;
}

/** The next step by the error's reason; for `not_found`, also by the kind. */
const advice: Readonly<Record<string, Advice>> = {
  // The message already says to stop the app; only the command is missing.
  app_running: { words: ": ", command: "svc stop", takesApp: true },
  app_not_running: { words: "; start it first: ", command: "svc start", takesApp: true },
  // The message already says to wait.
  app_busy: { words: "; see its progress with: ", command: "svc info", takesApp: true },
  start_failed: { words: "; see what it printed with: ", command: "svc logs", takesApp: true },
  root_required: { words: "; run it with ", command: "sudo" },
  "not_found app": { words: "; list installed apps with: ", command: "svc ls" },
  "not_found schedule": { words: "; see the jobs with: ", command: "svc schedule list" },
  "not_found operation": { words: "; list them with: ", command: "svc operations ls" },
  "not_found package": { words: "; list them with: ", command: "svc search" },
  "not_found source": { words: "; list them with: ", command: "svc source ls" },
  "not_found credential": { words: "; list them with: ", command: "svc credential list" },
  "not_found storage": { words: "; list them with: ", command: "svc backup storage ls" },
  "not_found node": { words: "; list them with: ", command: "svc node list" },
  "not_found container": { words: "; see them with: ", command: "svc docker ps --all" },
  "not_found compose project": { words: "; see them with: ", command: "svc docker ps --all" },
};

/** @returns the end of the error message; empty if there is nothing to add */
function nextStep(error: SvcError, app: string | undefined, start: string): string {
  if (error instanceof AdvisedError) return "";
  if (error instanceof UnreachableError) return `; start a daemon: ${start}`;
  if (namesAll(error)) return "; for every app: $(svc ls -q)";
  const next = adviceOn(error);
  if (next === undefined || namesCommand(error.message) || error.message.includes(next.command)) return "";
  if (next.takesApp !== true) return `${next.words}${next.command}`;
  return app === undefined ? "" : `${next.words}${next.command} ${app}`;
}

/** People type `svc restart all`. */
function namesAll({ reason, payload }: SvcError): boolean {
  const { kind, name } = (payload ?? {}) as { kind?: string; name?: string };
  return reason === "not_found" && kind === "app" && name === "all";
}

/** Whether the message ends with a command to run. */
function namesCommand(message: string): boolean {
  return /: svc [a-z].*$/.test(message);
}

function adviceOn({ reason, payload }: SvcError): Advice | undefined {
  const { kind, takenPort } = (payload ?? {}) as { kind?: string; takenPort?: number };
  // The message says what to do, and an app that was not started has no output to look at.
  if (takenPort !== undefined) return undefined;
  return advice[kind === undefined ? reason : `${reason} ${kind}`];
}

function lastLines(error: SvcError): readonly string[] {
  const payload = error.payload as { lastLines?: readonly string[] } | undefined;
  return payload?.lastLines ?? [];
}

/** The error in the shape of REST, which `--json` prints on stderr. */
export function failureJson(error: unknown): Record<string, unknown> {
  const known = asSvcError(error);
  if (known !== undefined) {
    const { code, reason } = known;
    const payload = known.payload === undefined ? {} : { [reason]: snakeKeys(known.payload) };
    return { error: known.message, code, reason, ...payload };
  }
  const message = error instanceof Error ? error.message : String(error);
  return error instanceof UsageError
    ? { error: message, code: "invalid_argument", reason: "invalid_request" }
    : { error: message, code: "internal", reason: "internal" };
}

function snakeKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(snakeKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => !key.startsWith("$"))
      .map(([key, inner]) => [snakeCase(key), snakeKeys(inner)]),
  );
}
