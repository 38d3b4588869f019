/** Carries the requests that dockerode composes over the engine's socket. */
import { request, type IncomingMessage, type OutgoingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { stringify } from "node:querystring";
import type { Readable } from "node:stream";
import { addAbortSignal } from "node:stream";
import { SvcError } from "../errors.ts";
import { EngineRefusal, plainMessage } from "./engine-errors.ts";

/** What dockerode hands over; its fields are those of docker-modem's `dial`. */
interface DialOptions {
  /** Ends with `?` where the options belong into the query. */
  path: string;
  method: string;
  /** Query or body. */
  options?: Record<string, unknown>;
  /** A body that is no JSON: an archive. */
  file?: Buffer | Readable | string;
  headers?: Record<string, string>;
  /** Credentials of a registry. */
  authconfig?: { key?: string; base64?: string } & Record<string, unknown>;
  /** Credentials of all registries, for builds. */
  registryconfig?: { base64?: string } & Record<string, unknown>;
  isStream?: boolean;
  hijack?: boolean;
  openStdin?: boolean;
  /** `true` for what is a success. */
  statusCodes: Readonly<Record<number, string | true>>;
}

type DialCallback = (error: unknown, data?: unknown) => void;

export interface EngineTransportOptions {
  socketPath: string;
  /** Of the API, such as `1.41`. */
  version: string;
  /** Ends every request and every stream. */
  signal: AbortSignal;
}

/** More than this no answer may hold that is read as a whole. */
const maxAnswerBytes = 64 * 1024 * 1024;

/**
 * Stands in for docker-modem, which connects to wherever `DOCKER_HOST` in the environment says, has no way to end
 * all requests of a call, and prints each request to a string that nobody reads.
 */
export class EngineTransport {
  /** dockerode makes its promises with it. */
  readonly Promise = Promise;
  readonly #options: EngineTransportOptions;

  constructor(options: EngineTransportOptions) {
    this.#options = options;
  }

  /** Called by dockerode; never throws. */
  dial(dial: DialOptions, callback: DialCallback): void {
    this.#perform(dial).then((data) => callback(null, data), callback);
  }

  async #perform(dial: DialOptions): Promise<unknown> {
    if (dial.openStdin === true && dial.hijack !== true) {
      throw new Error("a stream in both directions needs hijack");
    }
    const { socketPath, signal } = this.#options;
    const { path, body, headers } = this.#compose(dial);
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage | Socket>();
    // A new connection each: one that was kept may be of an engine that has ended since.
    const call = request({ socketPath, method: dial.method, path, headers, agent: false, signal });
    call.once("response", resolve).once("error", reject);
    call.once("upgrade", (_response, socket: Socket, head: Buffer) => {
      if (head.length > 0) socket.unshift(head);
      resolve(addAbortSignal(signal, socket));
    });
    if (typeof body === "string" || Buffer.isBuffer(body)) call.end(body);
    else if (body === undefined) call.end();
    else body.once("error", (error) => call.destroy(error)).pipe(call);
    const answer = await promise;
    if (!("statusCode" in answer)) return answer;
    addAbortSignal(signal, answer);
    if (dial.statusCodes[answer.statusCode ?? 0] !== true) throw await readRefusal(answer);
    return dial.isStream === true || dial.hijack === true ? answer : parse(await readAll(answer));
  }

  #compose(dial: DialOptions): {
    path: string;
    body: string | Buffer | Readable | undefined;
    headers: OutgoingHttpHeaders;
  } {
    const { abortSignal: _, authconfig: __, ...options } = dial.options ?? {};
    const bare = dial.path.endsWith("?") ? dial.path.slice(0, -1) : dial.path;
    refuseOddPath(bare);
    const { query, content } = split(dial, bare, options);
    const headers: OutgoingHttpHeaders = { ...dial.headers, host: "docker" };
    if (dial.authconfig !== undefined) {
      const { key, base64 } = dial.authconfig;
      headers["x-registry-auth"] = key ?? base64 ?? base64Json(dial.authconfig);
    }
    if (dial.registryconfig !== undefined) {
      headers["x-registry-config"] = dial.registryconfig.base64 ?? base64Json(dial.registryconfig);
    }
    if (dial.hijack === true) Object.assign(headers, { connection: "Upgrade", upgrade: "tcp" });
    const search = queryText(query);
    const path = `/v${this.#options.version}${bare}${search === "" ? "" : `?${search}`}`;
    return { path, body: this.#body(dial, content, headers), headers };
  }

  #body(
    dial: DialOptions,
    content: Record<string, unknown> | undefined,
    headers: OutgoingHttpHeaders,
  ): string | Buffer | Readable | undefined {
    if (dial.file !== undefined) {
      if (typeof dial.file === "string")
        throw new Error("files are read by their owner, not by the engine's client");
      headers["content-type"] ??= "application/tar";
      return dial.file;
    }
    if (content === undefined) return undefined;
    const text = JSON.stringify(content);
    headers["content-type"] ??= "application/json";
    headers["content-length"] = Buffer.byteLength(text);
    return text;
  }
}

/**
 * Which options are the query and which the body. dockerode leaves the query of two paths out, and gives both to all
 * others, which would put the environment of a container into a URL.
 */
function split(
  { path, method, file }: DialOptions,
  bare: string,
  options: Record<string, unknown>,
): { query: Record<string, unknown>; content: Record<string, unknown> | undefined } {
  if (bare === "/containers/create") {
    const { name, platform, ...content } = options;
    return {
      query: { ...(name !== undefined && { name }), ...(platform !== undefined && { platform }) },
      content,
    };
  }
  if (bare === "/volumes/create" || bare === "/networks/create") return { query: {}, content: options };
  const hasQuery = method !== "POST" || path.endsWith("?") || bare === "/build/prune" || file !== undefined;
  return hasQuery ? { query: options, content: undefined } : { query: {}, content: options };
}

/** Names become parts of paths: one with `?` or `..` in it would be another request. */
function refuseOddPath(path: string): void {
  const isPlain = /^(\/[A-Za-z0-9._:@%+=~-]+)+$/.test(path) && !/(^|\/)\.\.?(\/|$)|%2e|%2f/i.test(path);
  if (isPlain) return;
  throw new SvcError(
    "invalid_argument",
    "invalid_request",
    `${JSON.stringify(path)} is no name the engine knows`,
    {
      payload: { violations: [] },
    },
  );
}

function queryText(query: Record<string, unknown>): string {
  const entries = Object.entries(query).map(([name, value]) => [
    name,
    typeof value === "object" && value !== null && !Array.isArray(value) ? JSON.stringify(value) : value,
  ]);
  return stringify(Object.fromEntries(entries) as Record<string, string>);
}

/** As the engine wants it: with padding, without which it silently knows no password. */
function base64Json(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
}

async function readRefusal(answer: IncomingMessage): Promise<EngineRefusal> {
  const body = parse(await readAll(answer));
  const { message } = (typeof body === "object" && body !== null ? body : {}) as { message?: unknown };
  const words = typeof message === "string" ? message : typeof body === "string" ? body : "no reason given";
  return new EngineRefusal(answer.statusCode ?? 0, plainMessage(words));
}

async function readAll(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > maxAnswerBytes) throw new Error(`an answer of more than ${maxAnswerBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** JSON where it is some; else the bytes, as dockerode's callers expect of logs. */
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
