/** Unary calls of Connect: the body is one message, binary or JSON (connectrpc.com/docs/protocol). */
import {
  fromBinary,
  fromJsonString,
  toBinary,
  toJsonString,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { codeToHttpStatus, errorToJsonBytes, parseTimeout } from "@connectrpc/connect/protocol-connect";
import type { HttpCall } from "../http-call.ts";
import {
  appendHeaders,
  boundsOf,
  compress,
  errorToSend,
  isToCompress,
  isUncompressed,
  procedureAt,
  readable,
  textOf,
  type ProcedureOptions,
  type ProcedureProtocol,
} from "../procedures.ts";

/** Encoding of messages. */
interface Codec {
  readonly contentType: string;
  readonly read: (type: DescMessage, body: Buffer) => Message;
  readonly write: (type: DescMessage, message: Message) => Uint8Array;
}

export function createConnectProto(options: ProcedureOptions): ProcedureProtocol {
  return createConnect(options, {
    contentType: "application/proto",
    read: (type, body) => fromBinary(type, body),
    write: (type, message) => toBinary(type, message),
  });
}

export function createConnectJson(options: ProcedureOptions): ProcedureProtocol {
  const { jsonOptions } = options.pipeline;
  // The options of Connect for Node.
  const readOptions = { ignoreUnknownFields: true, ...jsonOptions };
  return createConnect(options, {
    contentType: "application/json",
    read: (type, body) => fromJsonString(type, utf8.decode(body), readOptions),
    write: (type, message) => Buffer.from(toJsonString(type, message, jsonOptions)),
  });
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function createConnect(options: ProcedureOptions, { contentType, read, write }: Codec): ProcedureProtocol {
  return {
    name: "connect",
    ...boundsOf(options),

    recognise(request) {
      const { headers } = request;
      if (headers["content-type"] !== contentType || !isUncompressed(headers["content-encoding"]))
        return undefined;
      return procedureAt(
        options,
        request,
        parseTimeout(textOf(headers["connect-timeout-ms"]), options.maxTimeoutMs),
      );
    },

    putTimeout(headers, timeoutMs) {
      headers["connect-timeout-ms"] = String(timeoutMs);
    },

    message: ({ method }, body) => readable(() => read(method.input, body)),

    send({ method }, answer, call) {
      const { request, response } = call;
      const bytes = write(method.output, answer);
      if (isToCompress(bytes, request.headers["accept-encoding"])) {
        response.setHeader("content-encoding", "gzip");
        return compress(bytes).then((small) => end(call, 200, contentType, small));
      }
      end(call, 200, contentType, bytes);
      return undefined;
    },

    fail(call, error, thrown) {
      const sent = errorToSend(error, thrown);
      end(call, codeToHttpStatus(sent.code), "application/json", errorToJsonBytes(sent, undefined));
    },
  };
}

function end(call: HttpCall, status: number, contentType: string, body: Uint8Array): void {
  const { response, responseHeader, responseTrailer } = call;
  appendHeaders(response, responseHeader);
  appendHeaders(response, responseTrailer, "trailer-");
  response.setHeader("content-type", contentType);
  response.setHeader("content-length", body.length);
  response.writeHead(status);
  response.end(body);
}
