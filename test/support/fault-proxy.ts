/** A proxy for HTTP that does wrong what a test wants done wrong, and counts what passes. */
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";

export type Fault =
  /** The connection is cut: before the request goes on, or after so many bytes of the answer. */
  | { kind: "reset"; afterBytes?: number }
  /** Nothing is read or said any more: at once, or after so many bytes of the request or the answer. */
  | { kind: "stall"; afterBytes?: number }
  | { kind: "answer"; status: number; code: string }
  /** It goes on after so long. */
  | { kind: "late"; ms: number }
  /** It goes on, and the connection is cut before the answer. */
  | { kind: "lose-answer" };

export interface SeenRequest {
  method: string;
  /** With the query. */
  url: string;
  /** Of the header. */
  range: string;
}

export interface FaultProxy extends AsyncDisposable {
  readonly endpoint: string;
  /** What came, in order. */
  readonly seen: SeenRequest[];
  /** Bytes of answers' bodies. */
  readonly sentBytes: number;
  /** Asked for every request; undefined lets it pass. */
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
      await once(server, "close");
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
