/** Errors as the command line shows them: one sentence that says what to do next, and the exit code. */
import { SvcError } from "../errors.ts";
import { snakeCase } from "../lib/snake-case.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";
import { escapeControls, escapeLines } from "./render/escape.ts";
import { UnreachableError } from "./transport/http.ts";

/** The command line itself is wrong. Its message names the flag or argument. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UsageError";
  }
}

/** A file that the line names cannot be used, of which the command's help says nothing. */
export class UnusableFileError extends UsageError {}

/** What follows where people read that a line is wrong. @param command how it is called: `svc app logs` */
export function whereHelpIs(command: string): string {
  return `Try: ${command} --help`;
}

/** Whether an error leaves open what to type instead: it is of the line, and names neither an option nor a command. */
export function needsHelp(error: unknown): boolean {
  if (error instanceof UnusableFileError) return false;
  return error instanceof UsageError && !/(^|\s)(--|svc )/.test(error.message);
}

/** Some of several things failed; each was reported when it did. */
export class ReportedError extends Error {
  readonly exitCode: number;

  constructor(exitCode: number) {
    super("already reported");
    this.name = "ReportedError";
    this.exitCode = exitCode;
  }
}

/** The daemon's configuration is wrong: whoever starts it again sees the same. */
export class MisconfiguredError extends SvcError {
  constructor(error: SvcError) {
    super(error.reason, error.message, { payload: error.payload, cause: error });
    this.name = "MisconfiguredError";
  }
}

/** An error whose message says already what to do next. */
export class AdvisedError extends SvcError {
  constructor(error: SvcError, message: string) {
    super(error.reason, message, { payload: error.payload, cause: error });
    this.name = "AdvisedError";
  }
}

/** The error as one of ours. */
export function asSvcError(error: unknown): SvcError | undefined {
  return error instanceof SvcError ? (error as SvcError) : undefined;
}

/** What was asked for; undefined where there is none of it. */
export async function ifFound<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (asSvcError(error)?.reason === "not_found") return undefined;
    throw error;
  }
}

export interface Failure {
  readonly exitCode: number;
  /** One sentence, without control characters. Empty: there is nothing to say. */
  readonly message: string;
  /** What a failed command printed last, one line each. */
  readonly details: readonly string[];
}

/**
 * @param app the app that the command is about, for the command to try next
 * @param start how a daemon is started where none could be reached
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
  const message = `${escapeControls(known.message)}${next}`;
  const exitCode = known instanceof MisconfiguredError ? exitCodes.misconfigured : exitCodeOf(known.code);
  return { exitCode, message, details: lastLines(known).map(escapeControls) };
}

interface Advice {
  /** Between the error's sentence and the command. */
  readonly words: string;
  readonly command: string;
  /** Whether the command takes the app that the error is about. */
  readonly takesApp?: boolean;
}

/** What to do next, by the error's reason; where something is not found, by what it is. */
const advice: Readonly<Record<string, Advice>> = {
  // The sentence ends with the advice to stop it: only how is left to say.
  app_running: { words: ": ", command: "svc app stop", takesApp: true },
  app_not_running: { words: "; start it first: ", command: "svc app start", takesApp: true },
  // The sentence says already to wait for it.
  app_busy: { words: "; see how far it is with: ", command: "svc app info", takesApp: true },
  start_failed: { words: "; see what it printed with: ", command: "svc app logs", takesApp: true },
  root_required: { words: "; run it with ", command: "sudo" },
  "not_found app": { words: "; see what is installed with: ", command: "svc ls" },
  "not_found schedule": { words: "; see the jobs with: ", command: "svc schedule list" },
  "not_found package": { words: "; see what there is with: ", command: "svc search" },
  "not_found source": { words: "; see what there is with: ", command: "svc source ls" },
  "not_found credential": { words: "; see what there is with: ", command: "svc credential list" },
  "not_found storage": { words: "; see what there is with: ", command: "svc backup storage ls" },
  "not_found node": { words: "; see what there is with: ", command: "svc node list" },
  "not_found container": { words: "; see them with: ", command: "svc docker ps --all" },
  "not_found compose project": { words: "; see them with: ", command: "svc docker ps --all" },
};

/** What has not begun has printed nothing. */
const otherPort: Advice = {
  words: "; see which setting of it is the port, to choose another: ",
  command: "svc app settings get",
  takesApp: true,
};

/** @returns the end of the error's sentence; empty when nothing is known that it does not say already */
function nextStep(error: SvcError, app: string | undefined, start: string): string {
  if (error instanceof AdvisedError) return "";
  if (error instanceof UnreachableError) return `; start a daemon: ${start}`;
  const next = adviceOn(error);
  if (next === undefined || error.message.includes(next.command)) return "";
  if (next.takesApp !== true) return `${next.words}${next.command}`;
  return app === undefined ? "" : `${next.words}${next.command} ${app}`;
}

function adviceOn({ reason, message, payload }: SvcError): Advice | undefined {
  if (reason === "start_failed" && /: port \d+ is taken by /.test(message)) return otherPort;
  const { kind } = (payload ?? {}) as { kind?: string };
  return advice[kind === undefined ? reason : `${reason} ${kind}`];
}

function lastLines(error: SvcError): readonly string[] {
  const payload = error.payload as { lastLines?: readonly string[] } | undefined;
  return payload?.lastLines ?? [];
}

/** The error in the shape of REST, which is what `--json` prints on stderr. */
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
