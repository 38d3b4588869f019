/** The daemon's two doors, TCP and the unix socket: HTTP/1.1 and cleartext HTTP/2 on each, one pipeline behind (S 1.2). */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { UserContext } from "../rpc/user-context.ts";
import type { Pipeline } from "../rpc/pipeline.ts";
import type { Tokens } from "../tokens/tokens.ts";
import type { TransportLimits } from "./limits.ts";

/** What an HTTP/1.1 and an HTTP/2 request have in common for those who answer it. */
export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = ServerResponse | Http2ServerResponse;

/** A request whose caller is known. */
export interface IdentifiedRequest {
  readonly user: UserContext;
  readonly requestId: string;
}

/** Answers REST requests; called first, for both HTTP versions. `false`: not a path of its, and nothing was touched. */
export type RestDispatch = (
  request: HttpRequest,
  response: HttpResponse,
  caller: IdentifiedRequest,
) => boolean;

export interface ListenersLog {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

export interface ListenersOptions {
  readonly pipeline: Pipeline;
  readonly rest: RestDispatch;
  readonly tokens: Tokens;
  /** `system`: root peers are root. `user`: the daemon's own uid is, and peers other than it and uid 0 are closed at accept. */
  readonly mode: "system" | "user";
  /** The daemon's own uid: who token callers act as. */
  readonly selfUid: number;
  /** The user name of a uid; empty when the host has none. Cached by the giver. */
  readonly userName: (uid: number) => Promise<string> | string;
  /** TCP address; absent: no TCP listener. Port 0 takes a free one. */
  readonly tcp?: { readonly host: string; readonly port: number };
  /** Absolute path of the unix socket; absent: no socket. Its directory is made in `user` mode (0700). */
  readonly socketPath?: string;
  /** Host names besides the loopback ones that TCP takes (`[api] allowed_hosts`), without port. */
  readonly allowedHosts?: readonly string[];
  /** The ready bytes of `GET /v1/openapi.json`, read when first asked for. */
  readonly openapi?: () => Promise<Uint8Array>;
  readonly limits?: Partial<TransportLimits>;
  readonly log: ListenersLog;
}

export interface ListeningAddresses {
  readonly tcp?: { readonly host: string; readonly port: number };
  /** Absent when the socket could not be bound: a warning was logged, TCP serves on. */
  readonly socketPath?: string;
}

export interface Listeners extends AsyncDisposable {
  /**
   * Binds both doors.
   * @throws SvcError `unavailable` when the TCP address cannot be bound, or when a live daemon holds the socket and there is no TCP.
   */
  start(): Promise<ListeningAddresses>;
  /** Stops accepting, ends idle connections, gives running calls the grace, then aborts them as `unavailable`. */
  stop(): Promise<void>;
}

export declare function createListeners(options: ListenersOptions): Listeners;
