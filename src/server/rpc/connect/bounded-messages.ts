/**
 * Limits messages before Connect, which parses each at once: messages with too many fields are rejected, and
 * large or compressed ones are queued per user. Compressed messages are decompressed here to measure them.
 */
import type { DescMessage } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import {
  encodeEnvelope,
  type Compression,
  type UniversalHandler,
  type UniversalServerRequest,
} from "@connectrpc/connect/protocol";
import { tooMuchStructure } from "../../../errors.ts";
import { smallBodyBytes } from "../../../lib/body-scheduler.ts";
import { ByteList } from "../../../lib/byte-list.ts";
import type { FairQueue } from "../../../lib/fair-queue.ts";
import { hasMoreStructure } from "../../../lib/json.ts";
import { connectErrorOf, unnamedCompression } from "./connect-errors.ts";
import { endableBodyKey } from "./endable-body.ts";
import { formOf, type MessageForm } from "./message-form.ts";
import { MessageStructure } from "./message-structure.ts";
import { anonymous, shareName, userContextKey } from "../user-context.ts";

export interface BoundedMessagesOptions {
  /** Size limit of a decompressed message; Connect rejects larger ones. */
  readonly maxMessageBytes: number;
  /** Limit for the number of fields in a message; absent: no limit. */
  readonly maxStructure?: number;
  /** The compressions that Connect supports. */
  readonly compressions: readonly Compression[];
  readonly fairQueue: FairQueue;
}

/** Wraps the handlers of `routes`, so that they get only messages within the limits. */
export function boundMessages(
  routes: (router: ConnectRouter) => void,
  options: BoundedMessagesOptions,
): (router: ConnectRouter) => void {
  const structure = new MessageStructure();
  return (router) => {
    routes(router);
    const { handlers } = router;
    handlers.splice(0, handlers.length, ...handlers.map((handler) => bound(handler, options, structure)));
  };
}

function bound(
  handler: UniversalHandler,
  options: BoundedMessagesOptions,
  structure: MessageStructure,
): UniversalHandler {
  const bounded = async (request: UniversalServerRequest): ReturnType<UniversalHandler> => {
    if (request.method === "GET" && options.maxStructure !== undefined)
      await rejectLargeQuery(request, options.compressions);
    const form = formOf(request.header);
    const { body } = request;
    if (form === undefined || !isBytes(body)) return handler(request);
    const messages = new BoundedMessages(request, form, handler.method.input, options, structure);
    return handler({ ...request, header: messages.header, body: messages.of(body) });
  };
  return Object.assign(bounded, handler);
}

function isBytes(body: UniversalServerRequest["body"]): body is AsyncIterable<Uint8Array> {
  return typeof body === "object" && body !== null && Symbol.asyncIterator in body;
}

/**
 * Rejects a compressed message in a query that is too large when decompressed.
 * @throws SvcError `body_too_large`
 */
async function rejectLargeQuery(
  { url }: UniversalServerRequest,
  compressions: readonly Compression[],
): Promise<void> {
  const query = new URL(url).searchParams;
  const compression = compressions.find(({ name }) => name === query.get("compression"));
  if (compression === undefined) return;
  try {
    await compression.decompress(base64Decode(query.get("message") ?? ""), smallBodyBytes);
  } catch (error) {
    if (error instanceof ConnectError && error.code === Code.ResourceExhausted) throw tooMuchStructure();
    // Connect reports unreadable messages.
  }
}

/** Bytes of flags and length before each message of a stream or of gRPC. */
const envelopeBytes = 5;
const compressedFlag = 1;

/** The messages of one request. */
class BoundedMessages {
  /** Headers that describe the forwarded messages. */
  readonly header: Headers;
  readonly #form: MessageForm;
  readonly #input: DescMessage;
  readonly #maxBytes: number;
  readonly #maxStructure: number | undefined;
  readonly #compression: Compression | undefined;
  readonly #structure: MessageStructure;
  readonly #turn: () => Promise<void> | undefined;
  readonly #throwIfEnded: () => void;

  constructor(
    { header, contextValues }: UniversalServerRequest,
    form: MessageForm,
    input: DescMessage,
    { maxMessageBytes, maxStructure, compressions, fairQueue }: BoundedMessagesOptions,
    structure: MessageStructure,
  ) {
    this.#form = form;
    this.#input = input;
    this.#maxBytes = maxMessageBytes;
    this.#maxStructure = maxStructure;
    this.#compression = compressions.find(({ name }) => name === header.get(form.compressionHeader));
    this.#structure = structure;
    const share = shareName(contextValues?.get(userContextKey) ?? anonymous);
    this.#turn = () => fairQueue.wait(share);
    const body = contextValues?.get(endableBodyKey);
    this.#throwIfEnded = () => body?.throwIfEnded();
    this.header =
      this.#compression === undefined || form.isEnveloped ? header : decompressedHeader(header, form);
  }

  of(body: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    if (this.#form.isEnveloped) return this.#enveloped(body);
    return this.#compression === undefined && this.#maxStructure === undefined ? body : this.#bare(body);
  }

  async *#bare(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const received = new ByteList();
    let sizeBytes = 0;
    for await (const piece of body) {
      received.push(bufferOf(piece));
      sizeBytes += piece.length;
      if (sizeBytes > this.#maxBytes) yield* received.take();
    }
    if (sizeBytes <= this.#maxBytes) yield await this.#checked(received.bytes, this.#compression);
  }

  async *#enveloped(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const received = new ByteList();
    let missing = envelopeBytes;
    let isHead = true;
    let isChecked = false;
    /** Remaining bytes of a message that is forwarded without a check. */
    let passing = 0;
    for await (const piece of body) {
      for (let rest = bufferOf(piece); rest.length > 0;) {
        const part = rest.subarray(0, passing > 0 ? passing : missing);
        rest = rest.subarray(part.length);
        if (passing > 0) {
          passing -= part.length;
          yield part;
          continue;
        }
        received.push(part);
        missing -= part.length;
        if (missing > 0) continue;
        const whole = received.bytes;
        received.take();
        missing = envelopeBytes;
        if (!isHead) {
          isHead = true;
          yield isChecked ? await this.#reEnveloped(whole) : whole;
        } else {
          const size = whole.readUInt32BE(1);
          isChecked = this.#needsCheck(whole);
          if (size > 0 && size <= this.#maxBytes) {
            isHead = false;
            received.push(whole);
            missing = size;
          } else {
            passing = size;
            yield whole;
          }
        }
        // Small messages are many, and each is a piece of work.
        await this.#turn();
      }
    }
    yield* received.take();
  }

  /** Small uncompressed messages need no check. @throws ConnectError `internal` */
  #needsCheck(envelope: Buffer): boolean {
    const size = envelope.readUInt32BE(1);
    const isCompressed = ((envelope[0] ?? 0) & compressedFlag) !== 0;
    if (isCompressed && this.#compression === undefined) throw unnamedCompression();
    if (!isCompressed && this.#maxStructure === undefined) return false;
    return size > (isCompressed ? 0 : smallBodyBytes) && size <= this.#maxBytes;
  }

  async #reEnveloped(message: Buffer): Promise<Uint8Array> {
    const flags = message[0] ?? 0;
    const isCompressed = (flags & compressedFlag) !== 0;
    const bytes = await this.#checked(
      message.subarray(envelopeBytes),
      isCompressed ? this.#compression : undefined,
    );
    await this.#turn();
    return encodeEnvelope(flags & ~compressedFlag, bytes);
  }

  /** @throws ConnectError `resource_exhausted`, which becomes `body_too_large` */
  async #checked(message: Buffer, compression: Compression | undefined): Promise<Buffer> {
    let bytes = message;
    if (compression !== undefined) {
      bytes = Buffer.from(await compression.decompress(message as Uint8Array<ArrayBuffer>, this.#maxBytes));
      await this.#turn();
    }
    // A message that arrives after the deadline is rejected.
    this.#throwIfEnded();
    if (this.#hasMoreThan(this.#maxStructure, bytes)) throw connectErrorOf(tooMuchStructure());
    return bytes;
  }

  #hasMoreThan(most: number | undefined, bytes: Buffer): boolean {
    if (most === undefined) return false;
    if (this.#form.isJson) return hasMoreStructure(bytes.toString("latin1"), most);
    return this.#structure.hasMore(this.#input, bytes, most);
  }
}

function bufferOf({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}

function decompressedHeader(header: Headers, { compressionHeader, acceptHeader }: MessageForm): Headers {
  const decompressed = new Headers(header);
  // Without an accept header, the response uses the request's compression.
  if ((header.get(acceptHeader) ?? "") === "")
    decompressed.set(acceptHeader, header.get(compressionHeader) ?? "");
  decompressed.delete(compressionHeader);
  decompressed.delete("content-length");
  return decompressed;
}
