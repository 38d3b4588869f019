/** A call that came as a request of HTTP, whatever its protocol: its headers are made for the handler that asks for them. */
import { AbortSource } from "../lib/abort-source.ts";
import type { IncomingRequest, OutgoingResponse } from "../lib/http-messages.ts";
import type { Call } from "./call-context.ts";
import { shareName, type UserContext } from "./user-context.ts";

/** The caller of a request, known before anything else of it is read. */
export interface HttpCaller {
  readonly user: UserContext;
  readonly requestId: string;
  /** Whether the pipeline notes what becomes of the request, or has. */
  isNoted: boolean;
}

export interface HttpCallInit {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly caller: HttpCaller;
  readonly protocolName: string;
  /** Of procedures. */
  readonly url?: string | undefined;
  /** Milliseconds that the client gives it from now on. Default: any. */
  readonly timeoutMs?: number | undefined;
}

export class HttpCall implements Call {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly caller: HttpCaller;
  readonly protocolName: string;
  readonly url: string;
  /** Aborts when the client goes away or the daemon ends. */
  readonly source = new AbortSource();
  readonly #deadlineMs: number | undefined;
  #responseHeader: Headers | undefined;
  #responseTrailer: Headers | undefined;

  constructor({ request, response, caller, protocolName, url = "", timeoutMs }: HttpCallInit) {
    this.request = request;
    this.response = response;
    this.caller = caller;
    this.protocolName = protocolName;
    this.url = url;
    this.#deadlineMs = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
  }

  get user(): UserContext {
    return this.caller.user;
  }

  /** In whose turns its work is done. */
  get share(): string {
    return shareName(this.caller.user);
  }

  get requestId(): string {
    return this.caller.requestId;
  }

  /** What is left of it. */
  get timeoutMs(): number | undefined {
    return this.#deadlineMs === undefined ? undefined : this.#deadlineMs - performance.now();
  }

  openRequestHeader(): Headers {
    const opened = new Headers();
    for (const [name, value] of Object.entries(this.request.headers)) {
      // HTTP/2 has its request line among the headers.
      if (value === undefined || name.startsWith(":")) continue;
      for (const each of typeof value === "string" ? [value] : value) opened.append(name, each);
    }
    return opened;
  }

  openResponseHeader(): Headers {
    return (this.#responseHeader ??= new Headers());
  }

  openResponseTrailer(): Headers {
    return (this.#responseTrailer ??= new Headers());
  }

  /** What the handler added to the answer's headers; undefined when it asked for none. */
  get responseHeader(): Headers | undefined {
    return this.#responseHeader;
  }

  /** Likewise to what follows the answer. */
  get responseTrailer(): Headers | undefined {
    return this.#responseTrailer;
  }
}
