/**
 * Keep-alive messages of streams: proxies close a response that is silent for a minute. Connect and gRPC have no such message,
 * so the daemon sends an empty one to clients that announce by a header that they ignore it.
 */
import { isFieldSet, type DescMessage, type MessageShape } from "@bufbuild/protobuf";

/** Header of a request whose client ignores empty messages; its value is `1`. */
export const keepAliveHeader = "svc-keep-alive";

/** The messages of a stream without the empty ones. */
export async function* withoutKeepAlives<D extends DescMessage>(
  type: D,
  messages: AsyncIterable<MessageShape<D>>,
): AsyncGenerator<MessageShape<D>> {
  for await (const message of messages) {
    if (type.fields.some((field) => isFieldSet(message, field))) yield message;
  }
}
