/**
 * Opens a connection to the engine's BuildKit: an HTTP/1.1 request that switches to HTTP/2 without TLS (`Upgrade: h2c`).
 * In a session the engine is the client and svc the server; for control it is the other way around.
 */
import { request, type OutgoingHttpHeaders } from "node:http";
import { addAbortSignal, type Duplex } from "node:stream";
import { EngineRejection } from "../engine-errors.ts";

export interface UpgradeOptions {
  /** Path of the engine's socket. */
  readonly socketPath: string;
  /** Path in the API, such as `/v1.41/session`. */
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  /** Ends the connection. */
  readonly signal: AbortSignal;
}

/** @throws EngineRejection if the engine does not switch; errors of the connection */
export async function upgradeToHttp2({ socketPath, path, headers, signal }: UpgradeOptions): Promise<Duplex> {
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
  request({
    ...{ socketPath, path, signal, method: "POST", agent: false },
    headers: { host: "docker", connection: "Upgrade", upgrade: "h2c", ...headers },
  })
    .once("upgrade", (_response, socket: Duplex, head: Buffer) => {
      if (head.length > 0) socket.unshift(head);
      resolve(addAbortSignal(signal, socket));
    })
    .once("response", (response) => {
      response.resume();
      reject(new EngineRejection(response.statusCode ?? 0, "the engine has no BuildKit"));
    })
    .once("error", reject)
    .end();
  return promise;
}
