/** Only the procedures, on both of Node's servers, and clients that send exactly the given bytes. */
import { once } from "node:events";
import {
  createServer as createHttp1,
  request as httpRequest,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from "node:http";
import { connect as connectHttp2, createServer as createHttp2, type ClientHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { ConnectError } from "@connectrpc/connect";
import { errorFromJsonBytes } from "@connectrpc/connect/protocol-connect";
import { findTrailerError } from "@connectrpc/connect/protocol-grpc";
import { BodyScheduler } from "../../../../src/lib/body-scheduler.ts";
import type { AuditRecord } from "../../../../src/server/rpc/audit.ts";
import { createPipeline } from "../../../../src/server/rpc/pipeline.ts";
import {
  createConnectJson,
  createConnectProto,
} from "../../../../src/server/rpc/connect/connect-protocol.ts";
import { Exchange } from "../../../../src/server/rpc/exchange.ts";
import { createGrpc } from "../../../../src/server/rpc/grpc-protocol.ts";
import { createProcedureServer } from "../../../../src/server/rpc/procedures.ts";
import type { UserContext } from "../../../../src/server/rpc/user-context.ts";
import type { HttpRequest, HttpResponse } from "../../../../src/server/rpc/http-request.ts";
import { collectLog } from "../../http/support/gateway.ts";
import { fakeServices, type FakeHandlers } from "../../http/support/fake-services.ts";
import { nextEvent } from "../../../support/eventually.ts";

export const ways = ["Connect over HTTP/1.1", "Connect over HTTP/2", "gRPC"] as const;
export type Way = (typeof ways)[number];

export const root: UserContext = { uid: 0, root: true, kind: "peer", ownerUid: 0, peerUid: 0 };

export interface Answer {
  /** Including trailers. */
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** For a request that was passed on: the response echoes its body. */
  readonly isHandedOver: boolean;
  /** The deadline header of a request that was passed on. */
  readonly deadline: string | undefined;
  readonly error: ConnectError | undefined;
}

export interface ProcedureServer extends AsyncDisposable {
  readonly audits: readonly AuditRecord[];
  /** Recorded results of calls, such as `svc.v1.AppService/StartApp grpc ok`. */
  readonly ended: readonly string[];
  /** Unexpected errors. */
  readonly failures: readonly unknown[];
  /** Resolves when the next request has arrived, with its deadline running. */
  untilArrived(): Promise<void>;
  /** A request whose body is not sent yet. */
  begin(way: Way, path: string, headers?: Record<string, string>): ClientRequest | ClientHttp2Stream;
  post(way: Way, path: string, body: Buffer, headers?: Record<string, string>): Promise<Answer>;
}

export interface ProcedureServerOptions {
  readonly handlers?: Omit<FakeHandlers, "daemon">;
  readonly user?: UserContext;
  readonly maxMessageBytes?: number;
}

const handedOver = "x-handed-over";

export async function startProcedureServer(options: ProcedureServerOptions = {}): Promise<ProcedureServer> {
  const { handlers = {}, user = root, maxMessageBytes = 2 ** 20 } = options;
  const audits: AuditRecord[] = [];
  const ended: string[] = [];
  const failures: unknown[] = [];
  const pipeline = createPipeline({
    services: fakeServices(handlers),
    log: collectLog().log,
    audit: (record) => audits.push(record),
    observe: ({ method, protocolName, code }) => ended.push(`${method} ${protocolName} ${code}`),
  });
  const bodies = new BodyScheduler(pipeline.fairQueue);
  const log = { error: (details: object) => failures.push((details as { err: unknown }).err) };
  const known = { pipeline, maxMessageBytes, maxTimeoutMs: 60_000 };
  const procedures = createProcedureServer(new Exchange({ pipeline, bodies, log }), [
    createGrpc(known),
    createConnectProto(known),
    createConnectJson(known),
  ]);

  let arrival = Promise.withResolvers<undefined>();
  const answer = (request: HttpRequest, response: HttpResponse): void => {
    const handOver = (): void => {
      const { "grpc-timeout": grpc, "connect-timeout-ms": connect } = request.headers;
      response.setHeader(handedOver, String(grpc ?? connect ?? "without a deadline"));
      // Iterates over it, as Connect for Node does.
      void Array.fromAsync(request as AsyncIterable<Buffer>).then((chunks) => {
        response.end(Buffer.concat(chunks));
      });
    };
    if (!procedures(request, response, { user, requestId: "r1", isRecorded: false }, handOver)) handOver();
    arrival.resolve(undefined);
    arrival = Promise.withResolvers();
  };
  const [http1, http2] = [createHttp1(answer), createHttp2(answer)];
  for (const server of [http1, http2]) await once(server.listen(0, "127.0.0.1"), "listening");
  const [port, http2Port] = [http1, http2].map((server) => (server.address() as AddressInfo).port);
  const session = connectHttp2(`http://127.0.0.1:${http2Port}`);

  const begin: ProcedureServer["begin"] = (way, path, extra) => {
    const type = way === "gRPC" ? "application/grpc" : "application/proto";
    const headers = { "content-type": type, ...extra };
    if (way !== "Connect over HTTP/1.1")
      return session.request({ ":method": "POST", ":path": path, ...headers });
    return httpRequest({ host: "127.0.0.1", port, method: "POST", path, headers, agent: false });
  };
  return {
    audits,
    ended,
    failures,
    async untilArrived() {
      await arrival.promise;
    },
    begin,
    async post(way, path, body, headers) {
      const sent = begin(way, path, headers);
      const answered = answerOf(sent, way);
      sent.end(body);
      return answered;
    },
    async [Symbol.asyncDispose]() {
      session.destroy();
      const closed = Promise.all([http1, http2].map((server) => once(server, "close")));
      http1.close();
      http1.closeAllConnections();
      http2.close();
      await closed;
    },
  };
}

/** The response to an open request. */
export async function answerOf(sent: ClientRequest | ClientHttp2Stream, way: Way): Promise<Answer> {
  if ("session" in sent) {
    let headers: IncomingHttpHeaders = {};
    sent.on("response", (head) => (headers = { ...headers, ...head }));
    sent.on("trailers", (tail: IncomingHttpHeaders) => (headers = { ...headers, ...tail }));
    const body = await buffer(sent);
    return answerWith(headers, body, way, Number(headers[":status"]));
  }
  const [response] = (await nextEvent(sent, "response")) as [IncomingMessage];
  return answerWith(response.headers, await buffer(response), way, response.statusCode ?? 0);
}

function answerWith(headers: IncomingHttpHeaders, body: Buffer, way: Way, status: number): Answer {
  const isHandedOver = handedOver in headers;
  return {
    headers,
    body,
    isHandedOver,
    deadline: headers[handedOver] as string | undefined,
    error: isHandedOver ? undefined : errorIn(headers, body, way, status),
  };
}

function errorIn(
  headers: IncomingHttpHeaders,
  body: Buffer,
  way: Way,
  status: number,
): ConnectError | undefined {
  if (way !== "gRPC") {
    return status === 200 ? undefined : errorFromJsonBytes(body, undefined, new ConnectError(`${status}`));
  }
  const told = Object.entries(headers).filter(([name]) => name.startsWith("grpc-"));
  return findTrailerError(
    new Headers(told.map(([name, value]) => [name, String(value)] as [string, string])),
  );
}

/** A message in the protocol's encoding. */
export function framed(way: Way, message: Uint8Array, flags = 0): Buffer {
  if (way !== "gRPC") return Buffer.from(message);
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** The message in a response's body. */
export function unframed(way: Way, body: Buffer): Buffer {
  return way === "gRPC" ? body.subarray(5) : body;
}
