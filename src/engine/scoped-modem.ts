/** Sends dockerode's requests over one socket, within one scope. */
import { Agent, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { addAbortSignal } from "node:stream";
import { inspect } from "node:util";
import Modem from "docker-modem";
import { SvcError } from "../errors.ts";
import { EngineRejection, plainMessage } from "./engine-errors.ts";

export interface ScopedModemOptions {
  socketPath: string;
  /** API version, such as `1.41`. */
  version: string;
  /** Ends all requests and streams. */
  signal: AbortSignal;
  /** Called with each connection. */
  onSocket?: ((socket: Socket) => void) | undefined;
}

/** Limit of a response that is buffered. */
const maxAnswerBytes = 64 * 1024 * 1024;

/**
 * Opens a connection per request: a pooled connection may belong to an engine that has ended since. Its own `toJSON`
 * spares the modem three quarters of a call's cost, because the modem logs each request as JSON.
 */
class SocketReportingAgent extends Agent {
  readonly #onSocket: ((socket: Socket) => void) | undefined;

  constructor(onSocket?: (socket: Socket) => void) {
    super({ keepAlive: false });
    this.#onSocket = onSocket;
  }

  override createConnection(
    ...connect: Parameters<Agent["createConnection"]>
  ): ReturnType<Agent["createConnection"]> {
    const socket = super.createConnection(...connect);
    this.#onSocket?.(socket as Socket);
    return socket;
  }

  [inspect.custom](): string {
    return "agent";
  }
}

const agent = new SocketReportingAgent();

/** Accepts every status, because the caller checks it: the modem would buffer an error response without a limit. */
const anyStatus: Modem.StatusCodes = new Proxy({}, { get: () => true });

export class ScopedModem extends Modem {
  readonly #signal: AbortSignal;

  constructor({ socketPath, version, signal, onSocket }: ScopedModemOptions) {
    // Ignore `DOCKER_HOST` in the environment.
    super({
      socketPath,
      version: `v${version}`,
      agent: onSocket === undefined ? agent : new SocketReportingAgent(onSocket),
      host: undefined,
      protocol: "http",
      timeout: undefined,
    });
    this.#signal = signal;
  }

  /** Called by dockerode; never throws. */
  override dial(dialed: Modem.DialOptions, callback: Modem.RequestCallback = () => undefined): void {
    const isStream = dialed.isStream === true || dialed.hijack === true;
    const settle = (error: Error | null, answer: Parameters<Modem.RequestCallback>[1]): void => {
      if (error === null)
        this.#read(dialed, isStream, answer as IncomingMessage | Socket).then(
          (read) => callback(null, read),
          callback as (error: Error) => void,
        );
      else callback(error, null);
    };
    try {
      super.dial({ ...this.#compose(dialed), isStream: true, statusCodes: anyStatus }, settle);
    } catch (error) {
      callback(error as Error, null);
    }
  }

  async #read(
    { statusCodes = {} }: Modem.DialOptions,
    isStream: boolean,
    answer: IncomingMessage | Socket,
  ): Promise<object> {
    addAbortSignal(this.#signal, answer);
    if (!("statusCode" in answer)) return answer;
    if (statusCodes[answer.statusCode ?? 0] !== true) throw await readRefusal(answer);
    return isStream ? answer : (parse(await readAll(answer)) as object);
  }

  /** @throws SvcError `invalid_request` for a path that no valid name leads to */
  #compose(dialed: Modem.DialOptions): Modem.DialOptions {
    if (typeof dialed.file === "string")
      throw new Error("the engine's client does not read files; their owner does");
    if (dialed.openStdin === true && dialed.hijack !== true)
      throw new Error("a bidirectional stream requires hijack");
    const { abortSignal: _, authconfig: __, ...options } = dialed.options ?? {};
    const path = dialed.path.endsWith("?") ? dialed.path.slice(0, -1) : dialed.path;
    rejectInvalidPath(path);
    return {
      ...dialed,
      path: `${path}?`,
      options: split(dialed, path, options),
      abortSignal: this.#signal,
    };
  }
}

/**
 * Decides which options are the query and which the body. dockerode omits the query of two paths and sends both for
 * all others, which would put a container's environment into a URL. Query options of a service update begin with a
 * lower-case letter, as no part of a specification does.
 */
function split(
  dialed: Modem.DialOptions,
  path: string,
  options: Record<string, unknown>,
): { _query: object; _body: object } {
  if (path === "/containers/create") {
    const { name, platform, ...content } = options;
    return {
      _query: { ...(name !== undefined && { name }), ...(platform !== undefined && { platform }) },
      _body: content,
    };
  }
  if (/^\/services\/[^/]+\/update$/.test(path)) {
    const parts = Object.groupBy(Object.entries(options), ([key]) => (/^[a-z]/.test(key) ? "query" : "body"));
    return { _query: Object.fromEntries(parts.query ?? []), _body: Object.fromEntries(parts.body ?? []) };
  }
  const isBody = path === "/volumes/create" || path === "/networks/create";
  const isQuery = dialed.method !== "POST" || dialed.path.endsWith("?") || dialed.file !== undefined;
  return isBody || !isQuery ? { _query: {}, _body: options } : { _query: options, _body: {} };
}

/** Names become parts of paths: `?` or `..` in a name would change the request. */
function rejectInvalidPath(path: string): void {
  const isPlain = /^(\/[A-Za-z0-9._:@%+=~-]+)+$/.test(path) && !/(^|\/)\.\.?(\/|$)|%2e|%2f/i.test(path);
  if (isPlain) return;
  throw new SvcError(
    "invalid_request",
    `${JSON.stringify(path)} is not a valid name for the container engine`,
    {
      payload: { violations: [] },
    },
  );
}
async function readRefusal(answer: IncomingMessage): Promise<EngineRejection> {
  const body = parse(await readAll(answer));
  const { message } = (typeof body === "object" && body !== null ? body : {}) as { message?: unknown };
  const words =
    typeof message === "string" ? message : typeof body === "string" ? body : "no reason was given";
  return new EngineRejection(answer.statusCode ?? 0, plainMessage(words));
}

async function readAll(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxAnswerBytes) throw new Error(`a response of more than ${maxAnswerBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Returns parsed JSON, or else the bytes, which dockerode's callers expect of logs. */
function parse(bytes: Buffer): unknown {
  if (bytes.length === 0) return bytes;
  const isJson = [0x7b, 0x5b, 0x22, 0x6e].includes(bytes[0] ?? 0) || bytes.length < 8;
  if (!isJson) return bytes;
  try {
    return JSON.parse(bytes.toString()) as unknown;
  } catch {
    return bytes;
  }
}
