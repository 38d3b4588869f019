import type { JsonValue } from "@bufbuild/protobuf";

/** One request and what must come of it. */
export interface Vector {
  readonly name: string;
  /** `METHOD path`. */
  readonly request: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON; text and bytes are sent as they are. */
  readonly body?: JsonValue | Uint8Array;
  /** The method that is called and the message that it gets (ProtoJSON without defaults). */
  readonly calls?: readonly [method: string, message: JsonValue];
  /** Default 200, or 400 with `violations`. */
  readonly status?: number;
  readonly reason?: string;
  /** Fields of `invalid_request`, and what their descriptions say. */
  readonly violations?: Readonly<Record<string, RegExp>>;
  /** Headers of the answer. */
  readonly answerHeaders?: Readonly<Record<string, string>>;
  /** JSON of the answer. */
  readonly answer?: JsonValue;
}
