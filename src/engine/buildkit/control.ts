/** The engine's BuildKit: starts a build and follows its progress. */
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from "node:http2";
import { readStatus, solveRequest, statusRequest, type Solve, type SolveStatus } from "./control-messages.ts";
import { grpcFrame, grpcMessages } from "./grpc-messages.ts";
import { upgradeToHttp2, type UpgradeOptions } from "./http2-upgrade.ts";

export interface ControlOptions extends Omit<UpgradeOptions, "headers" | "path"> {
  /** The engine's API version. */
  readonly version: string;
}

const service = "/moby.buildkit.v1.Control";

/** An error that BuildKit reports. */
export class SolveError extends Error {}

export class BuildKitControl implements Disposable {
  readonly #session: ClientHttp2Session;

  private constructor(session: ClientHttp2Session) {
    this.#session = session;
  }

  /** @throws EngineRejection if the engine has no BuildKit */
  static async open({ version, ...options }: ControlOptions): Promise<BuildKitControl> {
    const socket = await upgradeToHttp2({ ...options, path: `/v${version}/grpc` });
    const session = connect("http://buildkit", { createConnection: () => socket });
    session.on("error", () => undefined);
    return new BuildKitControl(session);
  }

  /** Builds the image and gives it its names. @throws SolveError */
  async solve(solve: Solve): Promise<void> {
    for await (const _ of this.#call("Solve", solveRequest(solve)));
  }

  /** The progress of the build, until it ends. @throws SolveError */
  async *status(ref: string): AsyncGenerator<SolveStatus, void> {
    for await (const message of this.#call("Status", statusRequest(ref))) yield readStatus(message);
  }

  async *#call(method: string, request: Uint8Array): AsyncGenerator<Buffer, void> {
    const stream = this.#session.request({
      ":method": "POST",
      ":path": `${service}/${method}`,
      "content-type": "application/grpc",
      te: "trailers",
    });
    const status = grpcStatus(stream);
    status.catch(() => undefined);
    stream.end(grpcFrame(request));
    try {
      yield* grpcMessages(stream as AsyncIterable<Buffer>);
      await status;
    } finally {
      stream.close(constants.NGHTTP2_CANCEL);
    }
  }

  [Symbol.dispose](): void {
    this.#session.destroy();
  }
}

/** Rejects unless the call succeeds. The status is in the trailers, or in the headers of a call without a response. */
async function grpcStatus(stream: ClientHttp2Stream): Promise<undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<undefined>();
  const settle = (headers: Record<string, unknown>): void => {
    const { "grpc-status": code, "grpc-message": message } = headers;
    if (code === undefined) return;
    if (code === "0") resolve(undefined);
    else reject(new SolveError(typeof message === "string" ? decoded(message) : ""));
  };
  stream
    .on("response", settle)
    .on("trailers", settle)
    .once("error", reject)
    .once("close", () => reject(Object.assign(new Error("no status was received"), { code: "ECONNRESET" })));
  return promise;
}

function decoded(message: string): string {
  try {
    return decodeURIComponent(message);
  } catch {
    return message;
  }
}
