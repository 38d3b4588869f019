/**
 * Unary calls of gRPC: a binary message with a prefix of flags and length, and the status in trailers (grpc's
 * PROTOCOL-HTTP2.md).
 */
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { parseTimeout } from "@connectrpc/connect/protocol-grpc";
import { setGrpcStatus } from "./grpc-status.ts";
import { fitTrailers } from "./grpc-trailers.ts";
import type { HttpCall } from "./http-call.ts";
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
} from "./procedures.ts";

/** Flags and length before a message. */
const envelopeBytes = 5;
const compressedFlag = 1;

/** A timeout has at most eight digits in any unit. */
const maxTimeout = 99_999_999;

export function createGrpc(options: ProcedureOptions): ProcedureProtocol {
  return {
    name: "grpc",
    ...boundsOf(options),

    recognise(request) {
      const { headers, httpVersionMajor } = request;
      const type = headers["content-type"];
      const isPlain =
        httpVersionMajor === 2 &&
        (type === "application/grpc" || type === "application/grpc+proto") &&
        isUncompressed(headers["grpc-encoding"]);
      if (!isPlain) return undefined;
      return procedureAt(
        options,
        request,
        parseTimeout(textOf(headers["grpc-timeout"]), options.maxTimeoutMs),
      );
    },

    putTimeout(headers, timeoutMs) {
      headers["grpc-timeout"] =
        timeoutMs <= maxTimeout ? `${timeoutMs}m` : `${Math.floor(timeoutMs / 1000)}S`;
    },

    message({ method }, body) {
      const isOne =
        body.length >= envelopeBytes && body[0] === 0 && body.readUInt32BE(1) === body.length - envelopeBytes;
      return isOne ? readable(() => fromBinary(method.input, body.subarray(envelopeBytes))) : undefined;
    },

    send({ method }, answer, call) {
      const { request, response } = call;
      const bytes = toBinary(method.output, answer);
      if (isToCompress(bytes, request.headers["grpc-accept-encoding"])) {
        response.setHeader("grpc-encoding", "gzip");
        return compress(bytes).then((small) => end(call, enveloped(small, compressedFlag)));
      }
      end(call, enveloped(bytes, 0));
      return undefined;
    },

    fail(call, error, thrown) {
      setGrpcStatus(call.openResponseTrailer(), fitTrailers(errorToSend(error, thrown)));
      end(call);
    },
  };
}

function enveloped(bytes: Uint8Array, flags: number): Buffer {
  const envelope = Buffer.allocUnsafe(envelopeBytes + bytes.length);
  envelope[0] = flags;
  envelope.writeUInt32BE(bytes.length, 1);
  envelope.set(bytes, envelopeBytes);
  return envelope;
}

function end({ response, responseHeader, responseTrailer }: HttpCall, body?: Buffer): void {
  appendHeaders(response, responseHeader);
  response.setHeader("content-type", "application/grpc+proto");
  response.writeHead(200);
  const trailers: Record<string, string> = { "grpc-status": "0" };
  if (responseTrailer !== undefined) Object.assign(trailers, Object.fromEntries(responseTrailer));
  response.addTrailers(trailers);
  response.end(body);
}
