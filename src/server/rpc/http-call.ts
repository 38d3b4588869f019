/** A call over HTTP, in any protocol. Headers are created at first use. */
import type { DescMethod } from "@bufbuild/protobuf";
import { AbortSource } from "../../lib/abort.ts";
import type { IncomingRequest, OutgoingResponse } from "../../lib/http-messages.ts";
import type { Call } from "./call-context.ts";
import type { GatedCaller } from "./access.ts";
import { shareName, type UserContext } from "./user-context.ts";

/** The caller of a request, identified before the body is read. */
export interface HttpCaller extends GatedCaller {
  /** Whether the pipeline records the request. */
  isRecorded: boolean;
}

export interface HttpCallInit {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly caller: HttpCaller;
  readonly protocolName: string;
  /** For procedures. */
  readonly url?: string | undefined;
  /** The client's timeout in milliseconds, from now on. Default: none. */
  readonly timeoutMs?: number | undefined;
}

export class HttpCall implements Call {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly caller: HttpCaller;
  readonly protocolName: string;
  readonly url: string;
  /** Aborts when the client disconnects or the daemon stops. */
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

  /** Name of the share whose queue its work uses. */
  get share(): string {
    return shareName(this.caller.user);
  }

  get admittedTo(): DescMethod | undefined {
    return this.caller.admittedTo;
  }

  get requestId(): string {
    return this.caller.requestId;
  }

  /** The remaining time. */
  get timeoutMs(): number | undefined {
    return this.#deadlineMs === undefined ? undefined : this.#deadlineMs - performance.now();
  }

  openRequestHeader(): Headers {
    const opened = new Headers();
    for (const [name, value] of Object.entries(this.request.headers)) {
      // In HTTP/2, the headers include the request line.
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

  /** Response headers that the handler added; undefined if it used none. */
  get responseHeader(): Headers | undefined {
    return this.#responseHeader;
  }

  /** Response trailers that the handler added; undefined if it used none. */
  get responseTrailer(): Headers | undefined {
    return this.#responseTrailer;
  }
}
