/** A call that came as a request of HTTP, whatever its protocol: its headers are made for the handler that asks for them. */
import type { IncomingHttpHeaders } from "node:http";
import { AbortSource } from "../lib/abort-source.ts";
import type { Call } from "./call-context.ts";
import type { UserContext } from "./user-context.ts";

export interface HttpCallInit {
  readonly user: UserContext;
  readonly requestId: string;
  readonly protocolName: string;
  readonly headers: IncomingHttpHeaders;
  /** Of procedures. */
  readonly url?: string;
  /** Milliseconds that the client gives it from now on. Default: any. */
  readonly timeoutMs?: number | undefined;
  /** Aborts when the client goes away. Default: a new one. */
  readonly source?: AbortSource;
}

export class HttpCall implements Call {
  readonly user: UserContext;
  readonly requestId: string;
  readonly protocolName: string;
  readonly url?: string;
  readonly source: AbortSource;
  readonly #headers: IncomingHttpHeaders;
  readonly #deadlineMs: number | undefined;
  #responseHeader: Headers | undefined;
  #responseTrailer: Headers | undefined;

  constructor(init: HttpCallInit) {
    const { user, requestId, protocolName, url, timeoutMs, headers, source = new AbortSource() } = init;
    this.user = user;
    this.requestId = requestId;
    this.protocolName = protocolName;
    if (url !== undefined) this.url = url;
    this.source = source;
    this.#deadlineMs = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    this.#headers = headers;
  }

  /** What is left of it. */
  get timeoutMs(): number | undefined {
    return this.#deadlineMs === undefined ? undefined : this.#deadlineMs - performance.now();
  }

  openRequestHeader(): Headers {
    const opened = new Headers();
    for (const [name, value] of Object.entries(this.#headers)) {
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
