/** Requests to the engine that are independent of the code under test. */
import { once } from "node:events";
import { request, type IncomingMessage } from "node:http";
import type { Readable } from "node:stream";

export interface EngineAnswer {
  readonly status: number;
  readonly text: string;
  /** The body, parsed if it is JSON. @throws Error with the body if the status differs. */
  expect(status: number): unknown;
}

/** One request over `socketPath`; a stream is sent as a tar archive, everything else as JSON. */
export async function engineRequest(
  socketPath: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<EngineAnswer> {
  const isStream = typeof body === "object" && body !== null && "pipe" in body;
  const contentType = isStream ? "application/x-tar" : "application/json";
  const call = request({
    socketPath,
    method,
    path,
    headers: { host: "engine", ...(body !== undefined && { "content-type": contentType }), ...headers },
    timeout: 60_000,
  });
  const answered = once(call, "response") as Promise<[IncomingMessage]>;
  if (isStream) (body as Readable).pipe(call);
  else call.end(body === undefined ? undefined : JSON.stringify(body));
  call.once("timeout", () => call.destroy(new Error(`${method} ${path}: no response within 60 s`)));
  const [response] = await answered;
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const status = response.statusCode ?? 0;
  const text = Buffer.concat(chunks).toString();
  return {
    status,
    text,
    expect(expected) {
      if (status !== expected) throw new Error(`${method} ${path}: ${status} ${text}`);
      try {
        return JSON.parse(text) as unknown;
      } catch {
        return text;
      }
    },
  };
}
