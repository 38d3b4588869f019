/** Converts errors between svc and the engine to SvcErrors. */
import { SvcError, notFound } from "../errors.ts";

/** An error response of the engine. */
export class EngineRejection extends Error {
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.name = "EngineRejection";
    this.statusCode = statusCode;
  }
}

const unreachable: Readonly<Record<string, string>> = {
  ENOENT: "the socket does not exist; install or start Docker",
  ECONNREFUSED: "nothing listens there; start Docker",
  EACCES: "permission denied",
  EPERM: "permission denied",
  ECONNRESET: "the engine closed the connection during a request",
  EPIPE: "the engine closed the connection during a request",
  ENOTSOCK: "the file is not a socket",
};

/** Errors of a swarm manager that has lost the other managers: only the text identifies them. */
const lostTheOthers =
  /swarm does not have a leader|lost leader status|no elected cluster leader|context deadline exceeded/;

/** Whether the error means that no response arrived. */
export function isUnreachable(error: unknown): boolean {
  return !(error instanceof SvcError) && !(error instanceof EngineRejection);
}

/** @param what completes "the container engine could not" */
export function engineError(error: unknown, what: string, socketPath: string): SvcError {
  if (error instanceof SvcError) return error as SvcError;
  if (error instanceof EngineRejection) return refusal(error, what);
  const { code = "" } = error as NodeJS.ErrnoException;
  const why = unreachable[code] ?? "the response is not valid";
  return new SvcError("unavailable", `the container engine at ${socketPath} cannot be reached: ${why}`, {
    cause: error,
  });
}

function refusal(error: EngineRejection, what: string): SvcError {
  const detail = error.message.replace(/^rpc error: code = \w+ desc = /, "");
  const message = `the container engine could not ${what}: ${detail}`;
  const options = { cause: error };
  // The engine responds with 500 to many errors that are not internal; this text comes from the kernel.
  if (/no space left on device|disk quota exceeded/i.test(error.message)) {
    return new SvcError("disk_full", message, options);
  }
  if (error.statusCode === 500 && lostTheOthers.test(detail)) {
    return new SvcError("unavailable", message, options);
  }
  switch (error.statusCode) {
    case 400:
      return new SvcError("invalid_request", message, {
        ...options,
        payload: { violations: [] },
      });
    case 401:
    case 403:
      return new SvcError("denied", message, options);
    case 404:
      return notFound("object", "", message, error);
    case 409:
      // The status is the same as for a container that is, or is not, running; only the text identifies a name in
      // use.
      return /already (in use by container|exists)/.test(error.message)
        ? new SvcError("already_exists", message, options)
        : new SvcError("not_possible", message, options);
    case 503:
      return new SvcError("unavailable", message, options);
    default:
      return new SvcError("not_possible", message, options);
  }
}

/**
 * Returns the engine's response, or `undefined` if it fails with one of `codes`: by default, if there is no such
 * object.
 */
export async function unlessGone<T>(
  answer: Promise<T>,
  codes: readonly SvcError["code"][] = ["not_found"],
): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof SvcError && codes.includes(error.code)) return undefined;
    throw error;
  }
}

const maxMessageLength = 1_000;

/** The engine's message as one line of limited length. */
export function plainMessage(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > maxMessageLength ? `${line.slice(0, maxMessageLength)} …` : line;
}
