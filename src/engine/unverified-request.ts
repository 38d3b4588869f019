/** A request to a server with an unverified certificate, which `fetch` does not support. */
import { request, type RequestOptions } from "node:https";
import { Readable } from "node:stream";

export interface UnverifiedRequest {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** Does not follow redirects. */
export function unverifiedFetch(url: URL, options: UnverifiedRequest): Promise<Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Response>();
  const tls: RequestOptions = { ...options, headers: { ...options.headers }, rejectUnauthorized: false };
  request(url, { ...tls, agent: false }, (message) => {
    const { statusCode: status = 502, headers } = message;
    const isEmpty = options.method === "HEAD" || status === 204 || status === 304;
    if (isEmpty) message.resume();
    const body = isEmpty ? null : (Readable.toWeb(message) as ReadableStream<Uint8Array>);
    const pairs = Object.entries(headers).flatMap(([name, value]) =>
      [value ?? []].flat().map((text): [string, string] => [name, text]),
    );
    resolve(new Response(body, { status, headers: pairs }));
  })
    .on("error", reject)
    .end();
  return promise;
}
