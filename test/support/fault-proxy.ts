/** An HTTP proxy that injects the faults of a test and counts the traffic. */
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { nextEvent } from "./eventually.ts";

export type Fault =
  /** The connection is closed: before the request is forwarded, or after this many bytes of the response. */
  | { kind: "reset"; afterBytes?: number }
  /** Nothing is read or written any more: at once, or after this many bytes of the request or the response. */
  | { kind: "stall"; afterBytes?: number }
  | { kind: "answer"; status: number; code: string }
  /** The connection continues after this time. */
  | { kind: "late"; ms: number }
  /** The request is forwarded, and the connection is closed before the response. */
  | { kind: "lose-answer" };

export interface SeenRequest {
  method: string;
  /** With the query. */
  url: string;
  /** The `Range` header. */
  range: string;
}

export interface FaultProxy extends AsyncDisposable {
  readonly endpoint: string;
  /** The requests, in order. */
  readonly seen: SeenRequest[];
  /** Bytes of response bodies. */
  readonly sentBytes: number;
  /** Called for every request; undefined forwards it. */
  fault: (request: SeenRequest) => Fault | undefined;
}

export async function startFaultProxy(targetPort: number): Promise<FaultProxy> {
  const state = { sentBytes: 0 };
  const seen: SeenRequest[] = [];
  const server = createServer((request, response) => {
    const what = { method: request.method ?? "", url: request.url ?? "", range: request.headers.range ?? "" };
    seen.push(what);
    const fault = proxy.fault(what);
    response.on("error", () => undefined);
    request.on("error", () => undefined);
    if (fault?.kind === "answer") {
      answer(request, response, fault);
      return;
    }
    if (fault?.kind === "late") {
      setTimeout(() => forward(request, response, undefined), fault.ms);
      return;
    }
    const isAtOnce = fault !== undefined && !("afterBytes" in fault);
    if (isAtOnce && fault.kind === "reset") request.socket.resetAndDestroy();
    else if (isAtOnce && fault.kind === "stall") request.pause();
    else forward(request, response, fault);
  });

  const forward = (request: IncomingMessage, response: ServerResponse, fault: Fault | undefined): void => {
    const onward = httpRequest({
      ...{ host: "127.0.0.1", port: targetPort, method: request.method, path: request.url },
      headers: request.headers,
      agent: false,
    });
    onward.on("error", () => request.socket.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
    onward.on("response", (answered) => {
      answered.on("error", () => undefined);
      if (fault?.kind === "lose-answer") {
        answered.resume();
        answered.on("end", () => request.socket.resetAndDestroy());
        return;
      }
      response.writeHead(answered.statusCode ?? 0, answered.rawHeaders);
      let sent = 0;
      answered.on("data", (bytes: Buffer) => {
        sent += bytes.length;
        state.sentBytes += bytes.length;
        const isFar = fault !== undefined && "afterBytes" in fault && sent >= (fault.afterBytes ?? 0);
        if (isFar && fault.kind === "reset") request.socket.resetAndDestroy();
        else if (isFar) answered.pause();
        else if (!response.write(bytes)) {
          answered.pause();
          response.once("drain", () => answered.resume());
        }
      });
      answered.on("end", () => response.end());
    });
  };

  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const proxy: FaultProxy = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    get sentBytes() {
      return state.sentBytes;
    },
    fault: () => undefined,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await nextEvent(server, "close");
    },
  };
  return proxy;
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  { status, code }: { status: number; code: string },
): void {
  request.resume();
  request.on("end", () => {
    response.writeHead(status, { "content-type": "application/xml" });
    response.end(
      `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`,
    );
  });
}
