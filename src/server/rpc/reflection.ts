/**
 * gRPC server reflection, v1 and v1alpha (https://github.com/grpc/grpc/blob/master/doc/server-reflection.md),
 * for clients such as grpcurl. There is no library for connect-es 2, so this reads the descriptors of the
 * generated code.
 */
import { Code } from "@connectrpc/connect";
import type { DescFile } from "@bufbuild/protobuf";
import {
  ServerReflection,
  type ServerReflectionRequest,
} from "../../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionV1Alpha } from "../../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { file_svc_v1_error } from "../../../gen/svc/v1/error_pb.ts";
import { SvcError } from "../../errors.ts";
import { implement, readOnlyForUsers, type BoundService } from "./bound-service.ts";
import { DescriptorIndex, serializeFiles } from "./descriptor-index.ts";

/** Limit per stream: clients request each symbol only once. */
const maxRequests = 10_000;

/** v1 and v1alpha have the same content. */
interface Answer {
  validHost: string;
  originalRequest: never;
  messageResponse: AnswerContent;
}

type AnswerContent =
  | { case: "fileDescriptorResponse"; value: { fileDescriptorProto: Uint8Array[] } }
  | { case: "allExtensionNumbersResponse"; value: { baseTypeName: string; extensionNumber: number[] } }
  | { case: "listServicesResponse"; value: { service: { name: string }[] } }
  | { case: "errorResponse"; value: { errorCode: number; errorMessage: string } };

/** Both versions of the reflection service; they describe `services` and themselves. */
export function bindReflection(services: readonly BoundService[]): BoundService[] {
  // Created at first use, since most daemons never need it.
  let subject: Subject | undefined;
  const answers = (requests: AsyncIterable<ServerReflectionRequest>): AsyncGenerator<Answer> =>
    answerAll(requests, (subject ??= subjectOf([...services, ...own])));
  const own = [
    implement(
      "grpc.reflection.v1.ServerReflection",
      () => ServerReflection,
      { serverReflectionInfo: answers },
      readOnlyForUsers,
    ),
    implement(
      "grpc.reflection.v1alpha.ServerReflection",
      () => ServerReflectionV1Alpha,
      // The same fields under other type names.
      { serverReflectionInfo: answers as never },
      readOnlyForUsers,
    ),
  ];
  return own;
}

/** The described services. */
interface Subject {
  readonly index: DescriptorIndex;
  readonly names: { name: string }[];
}

function subjectOf(services: readonly BoundService[]): Subject {
  return {
    // No service imports the error details, but clients need them.
    index: new DescriptorIndex([...services.map(({ service }) => service.file), file_svc_v1_error]),
    names: services.map(({ name }) => ({ name })).sort((a, b) => (a.name < b.name ? -1 : 1)),
  };
}

async function* answerAll(
  requests: AsyncIterable<ServerReflectionRequest>,
  { index, names }: Subject,
): AsyncGenerator<Answer> {
  // A file is sent once per stream (server-reflection.md).
  const sent = new Set<string>();
  let count = 0;
  for await (const request of requests) {
    if (++count > maxRequests) {
      const message = `a reflection stream answers at most ${maxRequests} requests; open another`;
      throw new SvcError("too_many", message);
    }
    yield {
      validHost: request.host,
      originalRequest: request as never,
      messageResponse: answerTo(request.messageRequest, index, sent, names),
    };
  }
}

function answerTo(
  request: ServerReflectionRequest["messageRequest"],
  index: DescriptorIndex,
  sent: Set<string>,
  names: { name: string }[],
): AnswerContent {
  switch (request.case) {
    case "listServices":
      return { case: "listServicesResponse", value: { service: names } };
    case "fileByFilename":
      return fileAnswer(index.file(request.value), `file "${request.value}"`, sent);
    case "fileContainingSymbol":
      return fileAnswer(index.fileOfSymbol(request.value), `symbol "${request.value}"`, sent);
    case "fileContainingExtension": {
      const { containingType, extensionNumber } = request.value;
      const what = `extension ${extensionNumber} of "${containingType}"`;
      return fileAnswer(index.fileOfExtension(containingType, extensionNumber), what, sent);
    }
    case "allExtensionNumbersOfType": {
      const extensionNumber = index.extensionNumbers(request.value);
      return extensionNumber === undefined
        ? failure(Code.NotFound, `no type "${request.value}"`)
        : { case: "allExtensionNumbersResponse", value: { baseTypeName: request.value, extensionNumber } };
    }
    case undefined:
      return failure(Code.InvalidArgument, "the request is empty");
  }
}

function fileAnswer(file: DescFile | undefined, what: string, sent: Set<string>): AnswerContent {
  if (file === undefined) return failure(Code.NotFound, `no ${what}`);
  // A requested file is sent again, its imports are not.
  sent.delete(file.proto.name);
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto: serializeFiles(file, sent) } };
}

function failure(errorCode: Code, errorMessage: string): AnswerContent {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}
