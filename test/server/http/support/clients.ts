/** The protocols of all calls in these tests. */
import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import type { Interceptor, Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { connect as netConnect } from "node:net";
import type { TestGateway } from "./gateway.ts";

export const protocols = ["Connect/h1", "Connect/h2c", "gRPC/h2c", "gRPC-Web/h1"] as const;
export type Protocol = (typeof protocols)[number];
export const listenersUnderTest = ["TCP", "unix"] as const;
export type ListenerName = (typeof listenersUnderTest)[number];

/** A client transport; its token is the gateway's unless another (or none, `""`) is given. */
export function transportTo(
  gateway: TestGateway,
  protocol: Protocol,
  listener: ListenerName,
  { token = gateway.token, headers = {} }: { token?: string; headers?: Record<string, string> } = {},
): Transport {
  const stamp: Interceptor = (next) => (request) => {
    if (token !== "") request.header.set("authorization", `Bearer ${token}`);
    for (const [name, value] of Object.entries(headers)) request.header.set(name, value);
    return next(request);
  };
  const interceptors = [stamp];
  const baseUrl = gateway.url;
  const socketPath = listener === "unix" ? gateway.socketPath : undefined;
  const http1 = {
    httpVersion: "1.1" as const,
    baseUrl,
    interceptors,
    nodeOptions: socketPath === undefined ? {} : { socketPath },
  };
  const http2 = {
    httpVersion: "2" as const,
    baseUrl,
    interceptors,
    nodeOptions: socketPath === undefined ? {} : { createConnection: () => netConnect(socketPath) },
    idleConnectionTimeoutMs: 100,
  };
  switch (protocol) {
    case "Connect/h1":
      return createConnectTransport(http1);
    case "Connect/h2c":
      return createConnectTransport(http2);
    case "gRPC/h2c":
      return createGrpcTransport(http2);
    case "gRPC-Web/h1":
      return createGrpcWebTransport(http1);
  }
}

export interface RestAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly json: any;
}

export interface RestRequestOptions {
  readonly method?: string;
  readonly body?: string | Uint8Array;
  readonly headers?: Record<string, string>;
  /** `""` for none; default the gateway's. */
  readonly token?: string;
  readonly listener?: ListenerName;
}

/** One HTTP/1.1 request on a separate connection; the path is sent unchanged. */
export function rest(
  gateway: TestGateway,
  path: string,
  options: RestRequestOptions = {},
): Promise<RestAnswer> {
  const { method = "GET", body, headers = {}, token = gateway.token, listener = "TCP" } = options;
  return new Promise((resolve, reject) => {
    const target =
      listener === "unix" ? { socketPath: gateway.socketPath } : { host: "127.0.0.1", port: gateway.port };
    const request = httpRequest({
      ...target,
      method,
      path,
      agent: false,
      headers: {
        ...(token === "" ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
    });
    request.on("error", reject);
    request.on("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("error", reject);
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", () => {
        const text = Buffer.concat(chunks).toString();
        let json: unknown;
        try {
          json = JSON.parse(text);
        } catch {
          json = undefined;
        }
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json });
      });
    });
    request.end(body);
  });
}
