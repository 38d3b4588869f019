/** Errors as the command line shows them: one sentence that says what to do next, and the exit code. */
import { SvcError } from "../errors.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";
import { daemonCommand } from "./no-daemon.ts";
import { escapeControls, escapeLines } from "./render/escape.ts";
import { UnreachableError } from "./transport/http.ts";

/** The command line itself is wrong. Its message names the flag or argument. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UsageError";
  }
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

/** An error whose message says already what to do next. */
export class AdvisedError extends SvcError {
  constructor(error: SvcError, message: string) {
    super(error.code, error.reason, message, { payload: error.payload, cause: error });
    this.name = "AdvisedError";
  }
}

/** The error as one of ours. */
export function asSvcError(error: unknown): SvcError | undefined {
  return error instanceof SvcError ? (error as SvcError) : undefined;
}

export interface Failure {
  readonly exitCode: number;
  /** One sentence, without control characters. Empty: there is nothing to say. */
  readonly message: string;
  /** What a failed command printed last, one line each. */
  readonly details: readonly string[];
}

/** @param app the app that the command is about, for the command to try next */
export function describeFailure(error: unknown, app?: string): Failure {
  if (error instanceof ReportedError) return { exitCode: error.exitCode, message: "", details: [] };
  if (error instanceof UsageError) {
    return { exitCode: exitCodes.usage, message: escapeControls(error.message), details: [] };
  }
  const known = asSvcError(error);
  if (known === undefined) {
    const message = error instanceof Error ? error.message : String(error);
    return { exitCode: exitCodes.failed, message: escapeLines(message), details: [] };
  }
  const next = nextStep(known, app === undefined ? undefined : escapeControls(app));
  const said = escapeControls(known.message);
  // The daemon may have said the same already.
  const message = next === undefined || said.includes(next.command) ? said : `${said}${next.text}`;
  return { exitCode: exitCodeOf(known.code), message, details: lastLines(known).map(escapeControls) };
}

/** @returns what to do next, and that as the end of the error's sentence */
function nextStep(error: SvcError, app: string | undefined): { command: string; text: string } | undefined {
  const step = (text: string, command: string) => ({ command, text: `; ${text}: ${command}` });
  if (error instanceof AdvisedError) return undefined;
  if (error instanceof UnreachableError) return step("start a daemon", daemonCommand);
  switch (error.reason) {
    case "app_running":
      // The sentence ends with the advice to stop it: only how is left to say.
      return { command: "svc app stop", text: `: svc app stop ${app ?? "ID"}` };
    case "app_not_running":
      return step("start it first", `svc app start ${app ?? "ID"}`);
    case "app_busy":
      // The sentence says already to wait for it.
      return step("see how far it is with", `svc app info ${app ?? "ID"}`);
    case "start_failed":
      return step("see what it printed with", `svc app logs ${app ?? "ID"}`);
    case "root_required":
      return { command: "sudo", text: "; run it with sudo" };
    case "not_found":
      return app === undefined ? undefined : step("see what is installed with", "svc ls");
    default:
      return undefined;
  }
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
      .map(([key, inner]) => [
        key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        snakeKeys(inner),
      ]),
  );
}
