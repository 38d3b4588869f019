/** HTTP/1.1 over a unix socket: one connection per request, which is how a command-line program lives. */
import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import { SvcError } from "../../errors.ts";

/** The daemon's socket and what every request to it says. */
export interface Endpoint {
  readonly socketPath: string;
  /** Sent with every request, such as who called sudo. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: Uint8Array | string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the answer must be complete. */
  readonly timeoutMs?: number | undefined;
}

/** Bytes of an answer that is read whole: logs may have 8 MiB of text, which JSON can make longer. */
const maxAnswerBytes = 64 * 1024 * 1024;

/** Codes of connect(2) that mean: nobody is there, or nobody lets us in. */
const unreachableCodes = new Set([
  "ECONNREFUSED",
  "ENOENT",
  "ENOTSOCK",
  "EACCES",
  "EPERM",
  "EINVAL",
  "ENAMETOOLONG",
]);

/** Nobody answered on the socket, and nothing was sent: it is safe to do the work in another way. */
export class UnreachableError extends SvcError<"unavailable"> {
  constructor(socketPath: string, cause: NodeJS.ErrnoException) {
    super("unavailable", "unavailable", unreachableMessage(socketPath, cause.code), { cause });
    this.name = "UnreachableError";
  }
}

function unreachableMessage(socketPath: string, code: string | undefined): string {
  switch (code) {
    case "ENOENT":
      return `there is no socket ${socketPath}`;
    case "EACCES":
    case "EPERM":
      return `this user may not open the socket ${socketPath}`;
    case "ENAMETOOLONG":
    case "EINVAL":
      return `the socket path ${socketPath} is longer than the 107 bytes that a socket can have`;
    default:
      return `no daemon answers on ${socketPath}`;
  }
}

/**
 * Sends a request and waits for the head of the answer.
 * @throws SvcError `unavailable`, `canceled` or `deadline_exceeded`
 */
export function send(endpoint: Endpoint, request: HttpRequest): Promise<IncomingMessage> {
  // A module's `import` of node:http would read all of its lazy exports, fetch included: 20 ms.
  const http = process.getBuiltinModule("node:http");
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  if (request.signal?.aborted === true) {
    reject(canceled());
    return promise;
  }
  const headers: OutgoingHttpHeaders = { host: "localhost", ...endpoint.headers, ...request.headers };
  if (request.body !== undefined) headers["content-length"] = Buffer.byteLength(request.body);
  const outgoing = http.request({
    socketPath: endpoint.socketPath,
    method: request.method,
    path: request.path,
    headers,
    agent: false,
  });
  const release = endWith(outgoing, request);
  outgoing.once("error", (error: NodeJS.ErrnoException) => {
    release();
    reject(connectionError(endpoint.socketPath, error));
  });
  outgoing.once("response", (incoming) => {
    incoming.once("close", release);
    resolve(incoming);
  });
  outgoing.end(request.body);
  return promise;
}

/** Destroys the request with a typed error when its signal aborts or its time is over. @returns releases both */
function endWith(outgoing: ClientRequest, request: HttpRequest): () => void {
  const abort = (): void => void outgoing.destroy(canceled());
  request.signal?.addEventListener("abort", abort, { once: true });
  const { timeoutMs } = request;
  const timer =
    timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          const message = `the daemon took longer than ${timeoutMs / 1000} s; give it more time with --timeout`;
          outgoing.destroy(new SvcError("deadline_exceeded", "deadline_exceeded", message));
        }, timeoutMs);
  return () => {
    clearTimeout(timer);
    request.signal?.removeEventListener("abort", abort);
  };
}

/** What broke a connection, as an error for people. */
export function connectionError(socketPath: string, error: unknown): SvcError {
  if (error instanceof SvcError) return error;
  const failure = error as NodeJS.ErrnoException;
  if (failure.syscall === "connect" && unreachableCodes.has(failure.code ?? "")) {
    return new UnreachableError(socketPath, failure);
  }
  return new SvcError("unavailable", "unavailable", `the daemon on ${socketPath} closed the connection`, {
    cause: error,
  });
}

/** @throws SvcError when the connection breaks or the answer is longer than 64 MiB. */
export async function readAll(endpoint: Endpoint, incoming: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of incoming as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > maxAnswerBytes) {
        throw new SvcError("resource_exhausted", "too_many", "the daemon's answer is longer than 64 MiB");
      }
      chunks.push(chunk);
    }
  } catch (error) {
    throw connectionError(endpoint.socketPath, error);
  }
  return Buffer.concat(chunks, length);
}

export function canceled(): SvcError<"canceled"> {
  return new SvcError("canceled", "canceled", "interrupted");
}
