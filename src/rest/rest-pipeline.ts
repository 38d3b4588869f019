/**
 * What REST asks of the pipeline behind it. Identity, access, rules, handlers, audit and the mapping of what handlers throw
 * are the pipeline's; paths, bodies and answers are REST's.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { Readable, Writable } from "node:stream";
import type { AbortSource } from "../lib/abort-source.ts";

/** The request of node's `http` and `http2` servers, as much of it as REST needs. */
export interface RestRequest extends Readable {
  readonly method?: string | undefined;
  /** The request target. */
  readonly url?: string | undefined;
  readonly httpVersionMajor: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** The response of node's `http` and `http2` servers (HTTP/2's is a stream of its own kind, hence the partial interface). */
export interface RestResponse extends Pick<Writable, "on" | "once" | "removeListener" | "write" | "end"> {
  readonly headersSent: boolean;
  writeHead(status: number, headers: Record<string, string | number>): unknown;
  destroy(error?: Error): unknown;
  /** HTTP/1.1 only: holds writes back, to send them together. */
  cork?(): void;
  uncork?(): void;
  /** HTTP/2 only. */
  readonly stream?: { close(code: number): void };
}

/** The call that a handler sees. The pipeline makes it; REST reads the answer's headers from it. */
export interface RestCall {
  /** Headers that the handler wants on the answer, such as `content-length` or `content-range` (which makes it a 206) of a download. */
  readonly responseHeader?: Headers | undefined;
}

export interface RestPipeline<Call extends RestCall> {
  /**
   * Identity, and the method's access level, before a byte of the body is read.
   * @param method undefined for a path that leads nowhere: identity only, so that strangers learn nothing
   * @param source aborts when the client goes away or the daemon ends
   * @throws SvcError: `unauthenticated`, `permission_denied`
   */
  gate(method: DescMethod | undefined, request: RestRequest, source: AbortSource): Call;
  /** Rules, handler, audit. @throws SvcError */
  unary(method: DescMethod, message: Message, call: Call): Promise<Message>;
  /** @throws SvcError, while iterating */
  serverStream(method: DescMethod, message: Message, call: Call): AsyncIterable<Message>;
  /** `messages` ends without an error when the upload is complete. @throws SvcError */
  clientStream(method: DescMethod, messages: AsyncIterable<Message>, call: Call): Promise<Message>;
}
