/**
 * The WebSocket at `GET /v1/apps/{id}/console`: AttachConsole for browsers, opened with a console token. Its
 * messages pass through the pipeline as the user who requested the token.
 */
import { create } from "@bufbuild/protobuf";
import { ServerResponse, type IncomingMessage } from "node:http";
import type { WebSocket, WebSocketServer } from "ws";
import { AppService, ConsoleInputSchema } from "../../../gen/svc/v1/app_pb.ts";
import {
  IssueConsoleTokenRequestSessions,
  type IssueConsoleTokenRequestSession,
} from "../../../gen/svc/v1/values.ts";
import { SvcError, invalidField } from "../../errors.ts";
import { JsonWriter } from "../rest/json-writer.ts";
import { canonicalPath } from "../rest/path.ts";
import { shownError } from "../rpc/error-mapping.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, shareName, type UserContext } from "../rpc/user-context.ts";
import type { ConsoleScope, ConsoleTokens } from "../../access/tokens/console-tokens.ts";
import type { ConnectionLimiter } from "./fair-shares/connection-limiter.ts";
import type { Connection } from "./connection.ts";
import { ConsoleSocket } from "./console-socket.ts";
import { throttleName } from "./failure-throttle.ts";
import { addressOf, type RequestSource, type TrustedProxies } from "./request-source.ts";
import type { HostCheck } from "./host-check.ts";
import { pathOf, type HttpRequest, type HttpResponse } from "../rpc/http-request.ts";
import { PacedStream } from "./fair-shares/paced-stream.ts";
import { reject } from "./reject-request.ts";
import { checkForm } from "./request-form.ts";
import type { Log } from "../../lib/log.ts";

export interface ConsoleUpgradeOptions {
  readonly pipeline: Pipeline;
  readonly tokens: Pick<ConsoleTokens<UserContext>, "consume">;
  readonly proxies: TrustedProxies;
  readonly hosts: HostCheck;
  readonly connections: ConnectionLimiter;
  /** Whether another wrong token from that share is still checked. */
  readonly mayFail: (shareName: string) => boolean;
  readonly nextRequestId: () => string;
  readonly log: Pick<Log, "error">;
}

/** The token is one of the offered subprotocols, because browsers cannot send a header. */
const protocol = "svc.console.v1";
const tokenProtocol = "svc.token.";
/** Limit for one message; pasted text arrives in pieces. */
const maxMessageBytes = 2 ** 20;
/** Limit for the frames of one message. Until the message is complete, each frame may retain the whole buffer of its read. */
const maxFragments = 64;
/** Limit for the reads of one unfinished frame. Each read costs about 200 bytes of overhead. */
const maxReads = 4_096;

/** Whether a request is for the console's WebSocket. */
export function isConsoleRequest(request: IncomingMessage): boolean {
  return (
    request.method === "GET" &&
    request.headers.upgrade?.toLowerCase() === "websocket" &&
    appIdOf(request) !== undefined
  );
}

/**
 * Rejects a console request without an upgrade (RFC 9110, section 15.5.22).
 * @throws SvcError `upgrade_required`
 */
export function rejectPlainConsole(request: HttpRequest, response: HttpResponse): void {
  const { method = "" } = request;
  if ((method !== "GET" && method !== "HEAD") || appIdOf(request) === undefined) return;
  // HTTP/2 does not support these headers.
  if (response instanceof ServerResponse) {
    response.setHeader("connection", "upgrade");
    response.setHeader("upgrade", "websocket");
  }
  const message = "a console needs a WebSocket: send `Upgrade: websocket` over HTTP/1.1";
  throw new SvcError("upgrade_required", message);
}

export class ConsoleUpgrade {
  readonly #options: ConsoleUpgradeOptions;
  readonly #writer = new JsonWriter();
  #server: Promise<WebSocketServer> | undefined;

  constructor(options: ConsoleUpgradeOptions) {
    this.#options = options;
  }

  /** Never throws. */
  async open(request: IncomingMessage, head: Buffer, connection: Connection): Promise<void> {
    const { socket } = connection;
    const requestId = this.#options.nextRequestId();
    const source = this.#options.proxies.sourceOf(connection.origin, request.headers, request.headers.host);
    try {
      const { user, scope, service } = this.#admit(request, connection, source);
      const share = { kind: user.peerUid === 0 ? "root" : "known", name: shareName(user) } as const;
      if (connection.share.kind === "unknown" && !this.#options.connections.assign(connection, share)) {
        socket.destroy();
        return;
      }
      const server = await (this.#server ??= loadServer());
      const stream = new PacedStream(connection, this.#options.pipeline.fairQueue);
      server.handleUpgrade(request, stream, head, (webSocket) => {
        void this.#serve(webSocket, { ...scope, service }, userFrom(source, user), requestId);
      });
    } catch (thrown) {
      this.#reject(request, shownError(thrown, requestId), connection, source);
    }
  }

  /** Checks the token last, because it is valid for one attempt. @throws SvcError */
  #admit(
    request: IncomingMessage,
    connection: Connection,
    source: RequestSource,
  ): { user: UserContext; scope: ConsoleScope; service: string } {
    const { hosts, tokens, mayFail } = this.#options;
    checkForm(request);
    canonicalPath(pathOf(request), { escapedSlash: "allow" });
    hosts.check(source, request.headers.origin);
    const query = new URLSearchParams((request.url ?? "").split("?", 2)[1]);
    const scope = { appId: appIdOf(request) ?? "", session: sessionOf(query.get("session")) };
    const user = tokens.consume(query.get("token") ?? offeredToken(request) ?? "", scope);
    if (user !== undefined) return { user, scope, service: query.get("service") ?? "" };
    if (!mayFail(throttleName(connection, source))) {
      throw new SvcError("too_many", "too many requests without a known token; wait a minute");
    }
    throw new SvcError(
      "unauthenticated",
      "the console token is unknown or has another scope: request a new one",
    );
  }

  async #serve(
    webSocket: WebSocket,
    opened: ConsoleScope & { readonly service: string },
    user: UserContext,
    requestId: string,
  ): Promise<void> {
    const { pipeline, log } = this.#options;
    const socket = new ConsoleSocket(webSocket);
    const first = create(ConsoleInputSchema, opened);
    try {
      const call = { user, requestId, protocolName: "websocket", signal: socket.gone };
      const output = pipeline.invokeStream(AppService.method.attachConsole, socket.inputs(first), call);
      for await (const message of output) await socket.send(message);
      socket.close();
    } catch (thrown) {
      const error = shownError(thrown, requestId);
      if (error.code === "internal") log.error({ requestId, err: thrown }, "unexpected error in a console");
      socket.fail(error);
    }
  }

  #reject(
    request: IncomingMessage,
    error: SvcError,
    { socket }: Connection,
    { origin }: RequestSource,
  ): void {
    try {
      this.#options.pipeline.recordResponse(
        AppService.method.attachConsole,
        {
          user: { ...anonymous, address: addressOf(origin) },
          requestId: "",
          protocolName: "websocket",
        },
        error,
      );
      const response = new ServerResponse(request);
      response.assignSocket(socket);
      response.setHeader("connection", "close");
      response.once("finish", () => socket.destroySoon());
      reject(request, response, error, { isProcedure: false, writer: this.#writer });
    } catch (err) {
      this.#options.log.error({ err }, "failed to send an error response");
      socket.destroy();
    }
  }
}

/** A token may be used from another address than the one that requested it. */
function userFrom({ origin }: RequestSource, user: UserContext): UserContext {
  return { ...user, address: addressOf(origin) };
}

function appIdOf(request: HttpRequest): string | undefined {
  const escaped = /^\/v1\/apps\/([^/]+)\/console$/.exec(pathOf(request))?.[1];
  try {
    return escaped === undefined ? undefined : decodeURIComponent(escaped);
  } catch {
    return undefined;
  }
}

function sessionOf(text: string | null): IssueConsoleTokenRequestSession {
  const session = IssueConsoleTokenRequestSessions.find((word) => word === text);
  if (session === undefined)
    throw invalidField("session", `must be one of ${IssueConsoleTokenRequestSessions.join(", ")}`);
  return session;
}

function offeredToken(request: IncomingMessage): string | undefined {
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  return offered.find((name) => name.startsWith(tokenProtocol))?.slice(tokenProtocol.length);
}

/** Loaded for the first console, since most daemons never need it. */
async function loadServer(): Promise<WebSocketServer> {
  const { WebSocketServer: Server } = await import("ws");
  return new Server({
    noServer: true,
    clientTracking: false,
    maxPayload: maxMessageBytes,
    maxFragments,
    maxBufferedChunks: maxReads,
    // Compressing secrets together with attacker-chosen text reveals them, and terminals need low latency.
    perMessageDeflate: false,
    // One message per turn of the event loop: a read may contain thousands, which would delay all other callers.
    allowSynchronousEvents: false,
    handleProtocols: (offered) => (offered.has(protocol) ? protocol : false),
  });
}
