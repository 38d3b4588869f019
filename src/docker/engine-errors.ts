/** What goes wrong between svc and the engine, in a sentence and a code. */
import { SvcError, notFound } from "../errors.ts";

/** An answer of the engine that is no success. */
export class EngineRefusal extends Error {
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.name = "EngineRefusal";
    this.statusCode = statusCode;
  }
}

const unreachable: Readonly<Record<string, string>> = {
  ENOENT: "there is no such socket; is it installed and running?",
  ECONNREFUSED: "nothing listens there; is it running?",
  EACCES: "svc may not connect to it",
  EPERM: "svc may not connect to it",
  ECONNRESET: "it went away in the middle of a request",
  EPIPE: "it went away in the middle of a request",
  ENOTSOCK: "this is no socket",
};

/** What a manager of a swarm says that has lost the others: the words are all that tells it. */
const lostTheOthers =
  /swarm does not have a leader|lost leader status|no elected cluster leader|context deadline exceeded/;

/** True: not the engine's answer, but the lack of one. */
export function isUnreachable(error: unknown): boolean {
  return !(error instanceof SvcError) && !(error instanceof EngineRefusal);
}

/** @param what goes on after "the container engine could not" */
export function engineError(error: unknown, what: string, socketPath: string): SvcError {
  if (error instanceof SvcError) return error as SvcError;
  if (error instanceof EngineRefusal) return refusal(error, what);
  const { code = "" } = error as NodeJS.ErrnoException;
  const why = unreachable[code] ?? "it does not answer as one should";
  return new SvcError("unavailable", `the container engine at ${socketPath} cannot be reached: ${why}`, {
    cause: error,
  });
}

function refusal(error: EngineRefusal, what: string): SvcError {
  const said = error.message.replace(/^rpc error: code = \w+ desc = /, "");
  const message = `the container engine could not ${what}: ${said}`;
  const options = { cause: error };
  // The engine answers 500 to much that is nobody's internal error: these words are the kernel's.
  if (/no space left on device|disk quota exceeded/i.test(error.message)) {
    return new SvcError("disk_full", message, options);
  }
  if (error.statusCode === 500 && lostTheOthers.test(said)) {
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
      // The same status as that of a container which runs, or does not; the words are all that tells a name that is taken.
      return /already (in use by container|exists)/.test(error.message)
        ? new SvcError("already_exists", message, options)
        : new SvcError("not_possible", message, options);
    case 503:
      return new SvcError("unavailable", message, options);
    default:
      return new SvcError("not_possible", message, options);
  }
}

/** What the engine answers, but `undefined` where it refuses with one of `codes`: by default, when there is no such thing. */
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

/** The engine's words as one line of bounded length. */
export function plainMessage(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > maxMessageLength ? `${line.slice(0, maxMessageLength)} …` : line;
}
