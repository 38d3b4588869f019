import type { JsonValue } from "@bufbuild/protobuf";

/** A request and its expected result. */
export interface Vector {
  readonly name: string;
  /** `METHOD path`. */
  readonly request: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON; bytes are sent unchanged. */
  readonly body?: JsonValue | Uint8Array;
  /** The called method and its message (ProtoJSON without defaults). */
  readonly calls?: readonly [method: string, message: JsonValue];
  /** Default 200, or 400 with `violations`. */
  readonly status?: number;
  readonly reason?: string;
  /** Fields of `invalid_request` with patterns for their descriptions. */
  readonly violations?: Readonly<Record<string, RegExp>>;
  /** Headers of the response. */
  readonly responseHeaders?: Readonly<Record<string, string>>;
  /** JSON of the response. */
  readonly response?: JsonValue;
}
