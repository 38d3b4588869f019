/** Unary calls over REST: the response is the JSON that `--json` prints. */
import { invalidField } from "../../errors.ts";
import { type CallOptions, defaultTimeoutMs } from "./client.ts";
import type { UnaryCall } from "./calls.ts";
import { readAll, send, type Endpoint } from "./http.ts";
import { restError } from "./rest-error.ts";
import type { Json } from "./rest-shape.ts";

/** @throws SvcError with the daemon's code, reason and payload */
export async function callRest<Request, Response>(
  endpoint: Endpoint,
  call: UnaryCall<Request, Response>,
  request: Request,
  options: CallOptions = {},
): Promise<Response> {
  const { path, body } = bindRequest(call, request as Readonly<Record<string, Json | undefined>>);
  const reads = call.httpMethod === "GET";
  const answer = await send(endpoint, {
    method: call.httpMethod,
    path,
    headers: {
      accept: "application/json",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    body,
    signal: options.signal,
    timeoutMs: options.timeoutMs ?? (reads ? defaultTimeoutMs.read : defaultTimeoutMs.change),
  });
  const text = (await readAll(answer)).toString("utf8");
  if (answer.status !== 200) throw restError(answer.status, text);
  return JSON.parse(text) as Response;
}

/** Fills the fields of the path; the remaining fields go to the body or the query. */
export function bindRequest(
  call: UnaryCall<never, unknown>,
  request: Readonly<Record<string, Json | undefined>>,
): { path: string; body: string | undefined } {
  const rest = new Map(Object.entries(request).filter(([, value]) => value !== undefined));
  const path = call.path.replace(/\{(\w+)\}/g, (_, field: string) => {
    const value = rest.get(field);
    rest.delete(field);
    // An empty value would change the path, so that another route or none would match.
    if (value === "") throw invalidField(field, "must not be empty");
    return encodeURIComponent(value as string);
  });
  if (call.body === "*") {
    return { path, body: JSON.stringify(Object.fromEntries(rest)) };
  }
  const pairs = [...rest].flatMap(([name, value]) =>
    [value].flat().map((item) => `${name}=${encodeURIComponent(String(item as string | number | boolean))}`),
  );
  return { path: pairs.length === 0 ? path : `${path}?${pairs.join("&")}`, body: undefined };
}
