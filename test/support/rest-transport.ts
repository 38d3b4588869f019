/** A Connect client transport that uses svc's REST API, and compares every response with `openapi.json`. */
import { request as httpRequest, type IncomingMessage } from "node:http";
import {
  create,
  fromJson,
  toJson,
  type DescMessage,
  type DescMethod,
  type DescMethodStreaming,
  type DescMethodUnary,
  type JsonObject,
  type JsonValue,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type StreamResponse,
  type Transport,
  type UnaryResponse,
} from "@connectrpc/connect";
import { ErrorDetailSchema } from "../../gen/svc/v1/error_pb.ts";
import { statedFields } from "../../gen/svc/v1/fields.ts";
import type { Route } from "../../src/server/rest/router.ts";

export interface RestTransportOptions {
  /** Unix socket, or host and port. */
  socketPath?: string;
  port?: number;
  headers?: Readonly<Record<string, string>>;
}

export interface RestAnswer {
  status: number;
  headers: IncomingMessage["headers"];
  text: string;
}

/** A request as it is sent. */
export async function sendRest(
  options: RestTransportOptions,
  method: string,
  path: string,
  body?: string,
  signal?: AbortSignal,
): Promise<RestAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<RestAnswer>();
  const request = httpRequest({
    ...(options.socketPath === undefined
      ? { host: "127.0.0.1", port: options.port }
      : { socketPath: options.socketPath }),
    method,
    path,
    headers: {
      ...(body !== undefined && { "content-type": "application/json" }),
      ...options.headers,
    },
    ...(signal && { signal }),
  });
  request.on("error", reject);
  request.on("response", (response) => {
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    response.on("error", reject);
    response.on("end", () =>
      resolve({
        status: response.statusCode ?? 0,
        headers: response.headers,
        text: Buffer.concat(chunks).toString("utf8"),
      }),
    );
  });
  request.end(body);
  return promise;
}

export function createRestTransport(options: RestTransportOptions): Transport {
  return {
    async unary<I extends DescMessage, O extends DescMessage>(
      method: DescMethodUnary<I, O>,
      signal: AbortSignal | undefined,
      _timeoutMs: number | undefined,
      header: ConstructorParameters<typeof Headers>[0],
      input: MessageInitShape<I>,
    ): Promise<UnaryResponse<I, O>> {
      // Most test files do not use REST, and loading this takes as long as everything else here.
      const [{ routes }, { checkAnswer }] = await Promise.all([
        import("../../gen/svc/v1/routes.ts"),
        import("./openapi-answers.ts"),
      ]);
      const route = routeOf(routes, method);
      const message = toJson(method.input, create(method.input, input)) as JsonObject;
      // protobuf-es does not write empty lists, and some are required.
      for (const { name, jsonName } of method.input.fields)
        if (statedFields.has(`${method.input.typeName}.${name}`)) message[jsonName] ??= [];
      const { path, rest } = fillPath(route, message);
      const query = route.body === "" ? queryOf(rest) : "";
      const body = route.body === "*" ? JSON.stringify(rest) : undefined;
      const extra = Object.fromEntries(new Headers(header));
      const answer = await sendRest(
        { ...options, headers: { ...options.headers, ...extra } },
        route.httpMethod,
        path + query,
        body,
        signal,
      );
      const json = JSON.parse(answer.text) as JsonObject;
      checkAnswer(route.httpMethod, route.template.source, answer.status, json);
      if (answer.status !== 200) throw errorOf(json);
      return {
        stream: false,
        service: method.parent,
        method,
        header: new Headers(),
        trailer: new Headers(),
        message: fromJson(method.output, json as JsonValue),
      };
    },
    stream<I extends DescMessage, O extends DescMessage>(
      method: DescMethodStreaming<I, O>,
    ): Promise<StreamResponse<I, O>> {
      return Promise.reject(new ConnectError(`${method.name} has no REST route`, Code.Unimplemented));
    },
  };
}

function routeOf(routes: readonly Route[], method: DescMethod): Route {
  const route = routes.find((candidate) => candidate.method === method);
  if (route === undefined) throw new Error(`${method.name} has no REST route`);
  return route;
}

function fillPath(route: Route, message: JsonObject): { path: string; rest: JsonObject } {
  const rest = { ...message };
  const path = route.template.source.replaceAll(/\{([^}=]+)(?:=[^}]*)?\}/g, (_whole, name: string) => {
    const value = rest[name];
    Reflect.deleteProperty(rest, name);
    return encodeURIComponent(typeof value === "string" ? value : JSON.stringify(value));
  });
  return { path, rest };
}

function queryOf(message: JsonObject): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(message)) {
    for (const item of [value].flat())
      query.append(name, typeof item === "string" ? item : JSON.stringify(item));
  }
  return query.size === 0 ? "" : `?${query.toString()}`;
}

/** The error that a Connect client would get, from a REST error body. */
function errorOf(body: JsonObject): ConnectError {
  const { error, code, reason } = body as { error: string; code: string; reason: string };
  const payloadField = reason === "build_failed" || reason === "start_failed" ? "command_failed" : reason;
  const payload = body[reason];
  const detail = fromJson(
    ErrorDetailSchema,
    { reason, ...(payload !== undefined && { [payloadField]: payload }) },
    { ignoreUnknownFields: false },
  );
  const codeNumber = Object.entries(Code).find(
    ([name]) => name.replaceAll(/(?<=.)([A-Z])/g, "_$1").toLowerCase() === code,
  )?.[1];
  return new ConnectError(error, (codeNumber as Code | undefined) ?? Code.Unknown, undefined, [
    { desc: ErrorDetailSchema, value: detail },
  ]);
}
