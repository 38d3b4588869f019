/**
 * Sends one HTTP request, to addresses that are already resolved and checked, so that a second lookup cannot
 * return another.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import type { LookupAddress } from "node:dns";
import type { LookupFunction } from "node:net";
import { unlessAborted } from "../../lib/abort.ts";
import { carryingHeaders } from "../jobs/header-rules.ts";

export interface Exchange {
  readonly url: URL;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The addresses of the URL's host, in order of preference. */
  readonly addresses: readonly LookupAddress[];
  readonly signal: AbortSignal;
}

export interface Answer {
  readonly status: number;
  /** Empty for none. */
  readonly location: string;
  /** The first bytes of the body. */
  readonly body: Buffer;
  /** Whether the body was longer. */
  readonly isTruncated: boolean;
  /** Why the body ended early; absent if it is complete. */
  readonly cutBy?: string;
}

/**
 * Sends the request over a new connection, never through a proxy, and reads at most `maxBodyBytes` of the
 * response.
 * @throws errors of node:http; the signal's reason
 */
export async function exchange(request: Exchange, maxBodyBytes: number): Promise<Answer> {
  const { url, method, body, signal } = request;
  const isHttps = url.protocol === "https:";
  // A separate agent: the global one may use a proxy from the environment, and reuses connections.
  const agent = isHttps ? new HttpsAgent({ keepAlive: false }) : new HttpAgent({ keepAlive: false });
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const outgoing = (isHttps ? httpsRequest : httpRequest)(url, {
    agent,
    method,
    headers: { ...ownHeaders(body, method), ...sentHeaders(request.headers) },
    lookup: pinned(request.addresses),
    signal,
  });
  outgoing.once("response", resolve);
  outgoing.once("error", reject);
  // A response with status 101 closes the connection without either event.
  outgoing.once("close", () => reject(new Error("the connection closed without a response")));
  outgoing.end(body);
  try {
    const answer = await unlessAborted(promise, signal);
    return {
      status: answer.statusCode ?? 0,
      location: answer.headers.location ?? "",
      ...(await readBody(answer, maxBodyBytes, signal)),
    };
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    outgoing.destroy();
    agent.destroy();
  }
}

async function readBody(
  answer: IncomingMessage,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Pick<Answer, "body" | "isTruncated" | "cutBy">> {
  const chunks: Buffer[] = [];
  let length = 0;
  const read = (): Pick<Answer, "body" | "isTruncated"> => ({
    body: Buffer.concat(chunks).subarray(0, maxBytes),
    isTruncated: length > maxBytes,
  });
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > maxBytes) break;
    }
    return read();
  } catch (error) {
    signal.throwIfAborted();
    return { ...read(), isTruncated: true, cutBy: error instanceof Error ? error.message : String(error) };
  }
}

function ownHeaders(body: string, method: string): Record<string, string> {
  const length = Buffer.byteLength(body);
  const hasBody = length > 0 || ["POST", "PUT", "PATCH"].includes(method);
  return {
    accept: "*/*",
    // The body is stored unmodified.
    "accept-encoding": "identity",
    "user-agent": "svc",
    connection: "close",
    ...(hasBody && { "content-length": String(length) }),
  };
}

/** In lower case, so that the owner's headers replace the defaults, except for transport headers. */
function sentHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const);
  return Object.fromEntries(entries.filter(([name]) => !carryingHeaders.has(name)));
}

/** A lookup that always returns the given addresses. */
function pinned(addresses: readonly LookupAddress[]): LookupFunction {
  return (_hostname, options, done) => {
    if (options.all) done(null, [...addresses]);
    else done(null, addresses[0]?.address ?? "", addresses[0]?.family);
  };
}
