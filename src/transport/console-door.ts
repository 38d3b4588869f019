/**
 * The WebSocket at `GET /v1/apps/{id}/console`: AttachConsole for browsers, opened by a console token (S 5.4, decisions 28).
 * What comes over it goes through the pipeline, as the caller who asked for the token.
 */
import { create } from "@bufbuild/protobuf";
import { ServerResponse, type IncomingMessage } from "node:http";
import type { WebSocket, WebSocketServer } from "ws";
import { AppService, ConsoleInputSchema } from "../../gen/svc/v1/app_pb.ts";
import {
  IssueConsoleTokenRequestSessions,
  type IssueConsoleTokenRequestSession,
} from "../../gen/svc/v1/words.ts";
import { SvcError, invalidField } from "../errors.ts";
import { JsonWriter } from "../rest/json-writer.ts";
import { pathProblem } from "../rest/path.ts";
import { shownError } from "../rpc/error-mapping.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import { anonymous, shareName, type UserContext } from "../rpc/user-context.ts";
import type { ConsoleScope, ConsoleTokens } from "../tokens/console-tokens.ts";
import type { ConnectionPlaces } from "./connection-places.ts";
import type { Connection } from "./connection.ts";
import { ConsoleSocket } from "./console-socket.ts";
import type { HostCheck } from "./host-check.ts";
import { pathOf, type HttpRequest, type HttpResponse } from "./http.ts";
import { addressOf } from "./identity.ts";
import { refuse } from "./refusal.ts";
import { checkForm } from "./request-form.ts";
import type { Log } from "../lib/log.ts";

export interface ConsoleDoorOptions {
  readonly pipeline: Pipeline;
  readonly tokens: Pick<ConsoleTokens<UserContext>, "consume">;
  readonly hosts: HostCheck;
  readonly places: ConnectionPlaces;
  /** Whether another wrong token from that share is heard at all. */
  readonly mayFail: (shareName: string) => boolean;
  readonly nextRequestId: () => string;
  readonly log: Pick<Log, "error">;
}

/** Among the protocols that a browser offers, as it cannot send a header. */
const protocol = "svc.console.v1";
const tokenProtocol = "svc.token.";
/** Of one message: what is pasted comes in pieces. */
const maxMessageBytes = 2 ** 20;

/** Whether a request asks for this door. */
export function isConsoleRequest(request: IncomingMessage): boolean {
  return (
    request.method === "GET" &&
    request.headers.upgrade?.toLowerCase() === "websocket" &&
    appIdOf(request) !== undefined
  );
}

/**
 * Says what a request for a console has to be, to one that is none: RFC 9110, 15.5.22.
 * @throws SvcError `upgrade_required`
 */
export function refusePlainConsole(request: HttpRequest, response: HttpResponse): void {
  const { method = "" } = request;
  if ((method !== "GET" && method !== "HEAD") || appIdOf(request) === undefined) return;
  // HTTP/2 has no such headers.
  if (response instanceof ServerResponse) {
    response.setHeader("connection", "upgrade");
    response.setHeader("upgrade", "websocket");
  }
  const message = "a console is a WebSocket: ask for it over HTTP/1.1 with `Upgrade: websocket`";
  throw new SvcError("upgrade_required", message);
}

export class ConsoleDoor {
  readonly #options: ConsoleDoorOptions;
  readonly #writer = new JsonWriter();
  #server: Promise<WebSocketServer> | undefined;

  constructor(options: ConsoleDoorOptions) {
    this.#options = options;
  }

  /** Never throws. */
  async open(request: IncomingMessage, head: Buffer, connection: Connection): Promise<void> {
    const { socket } = connection;
    const requestId = this.#options.nextRequestId();
    try {
      const { user, scope, service } = this.#admit(request, connection);
      const share = { kind: user.peerUid === 0 ? "root" : "known", name: shareName(user) } as const;
      if (connection.share.kind === "unknown" && !this.#options.places.identified(connection, share)) {
        socket.destroy();
        return;
      }
      const server = await (this.#server ??= loadServer());
      server.handleUpgrade(request, socket, head, (webSocket) => {
        void this.#serve(webSocket, { ...scope, service }, userFrom(connection, user), requestId);
      });
    } catch (thrown) {
      this.#refuse(request, shownError(thrown, requestId), connection);
    }
  }

  /** Everything else is looked at before the token, which is good for one try. @throws SvcError */
  #admit(
    request: IncomingMessage,
    { origin, share }: Connection,
  ): { user: UserContext; scope: ConsoleScope; service: string } {
    const { hosts, tokens, mayFail } = this.#options;
    checkForm(request);
    const problem = pathProblem(pathOf(request), { escapedSlash: "allow" });
    if (problem !== undefined) throw invalidField("", `the path is not canonical: ${problem}`);
    const { host } = request.headers;
    if (origin.kind === "tcp") hosts.checkHost(host);
    hosts.checkOrigin(request.headers.origin, host);
    const query = new URLSearchParams((request.url ?? "").split("?", 2)[1]);
    const scope = { appId: appIdOf(request) ?? "", session: sessionOf(query.get("session")) };
    const user = tokens.consume(query.get("token") ?? offeredToken(request) ?? "", scope);
    if (user !== undefined) return { user, scope, service: query.get("service") ?? "" };
    if (!mayFail(share.name)) {
      throw new SvcError("too_many", "too many requests without a known token; wait a minute");
    }
    throw new SvcError(
      "unauthenticated",
      "the console token is not known here, or is for something else: get a new one",
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
      if (error.code === "internal") log.error({ requestId, err: thrown }, "a console failed unexpectedly");
      socket.fail(error);
    }
  }

  #refuse(request: IncomingMessage, error: SvcError, { socket, origin }: Connection): void {
    try {
      this.#options.pipeline.noteAnswer(
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
      refuse(request, response, error, { isProcedure: false, writer: this.#writer });
    } catch (err) {
      this.#options.log.error({ err }, "a refusal could not be sent");
      socket.destroy();
    }
  }
}

/** Who uses a token need not sit where it was asked for. */
function userFrom({ origin }: Connection, user: UserContext): UserContext {
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

/** With the first console: most daemons never see one. */
async function loadServer(): Promise<WebSocketServer> {
  const { WebSocketServer: Server } = await import("ws");
  return new Server({
    noServer: true,
    clientTracking: false,
    maxPayload: maxMessageBytes,
    // What is compressed together with what somebody else chose can be guessed, and terminals want it at once.
    perMessageDeflate: false,
    handleProtocols: (offered) => (offered.has(protocol) ? protocol : false),
  });
}
