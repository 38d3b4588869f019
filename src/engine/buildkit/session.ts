/**
 * A session of a build: the engine asks svc for files and secrets over a connection that svc opened. Each of
 * its gRPC methods has a stream of requests and a stream of responses.
 */
import { performServerHandshake, type ServerHttp2Stream } from "node:http2";
import { SvcError } from "../../errors.ts";
import { grpcFrame, grpcMessages } from "./grpc-messages.ts";
import { upgradeToHttp2, type UpgradeOptions } from "./http2-upgrade.ts";

/** @throws SvcError, whose message the engine shows as the reason of the failed build */
export type SessionMethod = (
  requests: AsyncIterable<Buffer>,
  metadata: Metadata,
) => AsyncIterable<Uint8Array>;

/** Metadata that the engine sends with a call. */
export interface Metadata {
  /** The values of a name, in lower case. */
  readonly values: (name: string) => string[];
}

export interface SessionOptions extends Omit<UpgradeOptions, "headers" | "path"> {
  /** The engine's API version. */
  readonly version: string;
  /** Random; names the session in requests to the engine. */
  readonly id: string;
  /** By path, such as `/moby.filesync.v1.FileSync/DiffCopy`. */
  readonly methods: ReadonlyMap<string, SessionMethod>;
  /** Receives errors of methods. */
  readonly onError: (error: Error) => void;
}

const healthCheck = "/grpc.health.v1.Health/Check";
/** A `HealthCheckResponse` with the status SERVING. */
const healthy = Uint8Array.of(0x08, 0x01);
/** The engine sends each pattern of an ignore file in a header. */
const maxHeaderListPairs = 1_024;
const maxHeaderListSize = 1024 * 1024;
const grpcCodes = { internal: "13", notFound: "5", unimplemented: "12" };

/** Serves a session until the result is disposed of. */
export async function openSession(options: SessionOptions): Promise<Disposable> {
  const { version, id, methods, onError } = options;
  const socket = await upgradeToHttp2({
    ...options,
    path: `/v${version}/session`,
    headers: {
      "x-docker-expose-session-uuid": id,
      "x-docker-expose-session-name": "svc",
      // With the same key as an earlier build, the engine would keep its files whose size and time did not change.
      "x-docker-expose-session-sharedkey": id,
      "x-docker-expose-session-grpc-method": [healthCheck, ...methods.keys()],
    },
  });
  const session = performServerHandshake(socket, { maxHeaderListPairs, settings: { maxHeaderListSize } });
  // The build itself fails when its session does.
  session.on("error", () => undefined);
  session.on("stream", (stream, headers, _flags, raw: readonly string[]) => {
    stream.on("error", () => undefined);
    const path = headers[":path"] ?? "";
    const method = path === healthCheck ? answerHealthy : methods.get(path);
    serve(stream, { values: (name) => valuesOf(raw, name) }, method).catch(onError);
  });
  return { [Symbol.dispose]: () => session.destroy() };
}

/** The engine escapes values that are not ASCII as in a query, and marks them with a further header. */
function valuesOf(raw: readonly string[], name: string): string[] {
  const all = (headerName: string): string[] =>
    raw.filter((_, index) => index % 2 === 1 && raw[index - 1] === headerName);
  const isEscaped = all(`${name}-encoded`).length > 0;
  return all(name).map((value) => (isEscaped ? decodeURIComponent(value.replaceAll("+", " ")) : value));
}

async function* answerHealthy(): AsyncIterable<Uint8Array> {
  yield await Promise.resolve(healthy);
}

async function serve(
  stream: ServerHttp2Stream,
  metadata: Metadata,
  method: SessionMethod | undefined,
): Promise<void> {
  let trailers: Record<string, string> = { "grpc-status": "0" };
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.once("wantTrailers", () => stream.sendTrailers(trailers));
  try {
    if (method === undefined) {
      trailers = { "grpc-status": grpcCodes.unimplemented, "grpc-message": "not available" };
      return;
    }
    // A method that returns before the end of its requests must not reset the stream.
    const chunks = stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
    for await (const message of method(grpcMessages(chunks), metadata)) {
      if (stream.destroyed) return;
      if (!stream.write(grpcFrame(message))) await untilDrained(stream);
    }
  } catch (error) {
    // The engine resets streams that it no longer needs.
    if (stream.destroyed) return;
    const isMissing = error instanceof SvcError && error.code === "not_found";
    const message = error instanceof Error ? error.message : String(error);
    trailers = {
      "grpc-status": isMissing ? grpcCodes.notFound : grpcCodes.internal,
      "grpc-message": encodeURIComponent(message),
    };
    throw error;
  } finally {
    if (!stream.destroyed) stream.end();
  }
}

function untilDrained(stream: ServerHttp2Stream): Promise<void> {
  return new Promise((resolve) => {
    const settle = (): void => {
      stream.off("drain", settle).off("close", settle);
      resolve();
    };
    stream.on("drain", settle).on("close", settle);
  });
}
