/**
 * Messages on their way to Connect, which parses each in one piece: one that has more in it than a bound is refused before
 * (T 57), and those that are large or compressed are parsed in turns of their users. What is compressed is decompressed here: how much is
 * in it shows only then.
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
import { tooMuchStructure } from "../errors.ts";
import { smallBodyBytes } from "../lib/body-turns.ts";
import type { FairTurns } from "../lib/fair-turns.ts";
import { hasMoreStructure } from "../lib/json-structure.ts";
import { connectErrorOf, unnamedCompression } from "./connect-errors.ts";
import { endableBodyKey } from "./endable-body.ts";
import { formOf, type MessageForm } from "./message-form.ts";
import { MessageStructure } from "./message-structure.ts";
import { anonymous, shareName, userContextKey } from "./user-context.ts";

export interface BoundedMessagesOptions {
  /** Of one message, decompressed. To refuse larger ones is Connect's. */
  readonly maxMessageBytes: number;
  /** How much may be in one message; absent: whatever has room in it. */
  readonly maxStructure?: number;
  /** Those that Connect knows, too. */
  readonly compressions: readonly Compression[];
  readonly turns: FairTurns;
}

/** `routes`, with handlers that get no message that has more in it than the bound. */
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
      await refuseLargeQuery(request, options.compressions);
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

/** A query holds little, but what is compressed in it may be large: nobody sends that. @throws SvcError `body_too_large` */
async function refuseLargeQuery(
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
    // Not to be read, which is Connect's to say.
  }
}

/** Flags and length before a message of a stream, and of gRPC. */
const envelopeBytes = 5;
const compressedFlag = 1;

/** The messages of one request. */
class BoundedMessages {
  /** What the request says of the messages as they are handed on. */
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
    { maxMessageBytes, maxStructure, compressions, turns }: BoundedMessagesOptions,
    structure: MessageStructure,
  ) {
    this.#form = form;
    this.#input = input;
    this.#maxBytes = maxMessageBytes;
    this.#maxStructure = maxStructure;
    this.#compression = compressions.find(({ name }) => name === header.get(form.compressionHeader));
    this.#structure = structure;
    const share = shareName(contextValues?.get(userContextKey) ?? anonymous);
    this.#turn = () => turns.wait(share);
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
    const held: Uint8Array[] = [];
    let sizeBytes = 0;
    for await (const piece of body) {
      held.push(piece);
      sizeBytes += piece.length;
      if (sizeBytes > this.#maxBytes) yield* held.splice(0);
    }
    if (sizeBytes <= this.#maxBytes) yield await this.#checked(Buffer.concat(held), this.#compression);
  }

  async *#enveloped(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    let held: Buffer[] = [];
    let missing = envelopeBytes;
    let isHead = true;
    /** Of a message that is handed on as it comes. */
    let passing = 0;
    for await (const piece of body) {
      for (let rest = Buffer.from(piece.buffer, piece.byteOffset, piece.length); rest.length > 0;) {
        const part = rest.subarray(0, passing > 0 ? passing : missing);
        rest = rest.subarray(part.length);
        if (passing > 0) {
          passing -= part.length;
          yield part;
          continue;
        }
        held.push(part);
        missing -= part.length;
        if (missing > 0) continue;
        const whole = Buffer.concat(held);
        held = [];
        missing = envelopeBytes;
        if (!isHead) {
          isHead = true;
          yield await this.#reEnveloped(whole);
        } else if (this.#isToBeChecked(whole)) {
          isHead = false;
          held = [whole];
          missing = whole.readUInt32BE(1);
        } else {
          passing = whole.readUInt32BE(1);
          yield whole;
        }
      }
    }
    yield* held;
  }

  /** Little can be in a small message that is not compressed. @throws ConnectError `internal` */
  #isToBeChecked(envelope: Buffer): boolean {
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

  /** @throws ConnectError `resource_exhausted`, for us `body_too_large` */
  async #checked(message: Buffer, compression: Compression | undefined): Promise<Buffer> {
    let bytes = message;
    if (compression !== undefined) {
      bytes = Buffer.from(await compression.decompress(message as Uint8Array<ArrayBuffer>, this.#maxBytes));
      await this.#turn();
    }
    // What is there only after the deadline is too late, readable or not.
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

function decompressedHeader(header: Headers, { compressionHeader, acceptHeader }: MessageForm): Headers {
  const decompressed = new Headers(header);
  // Whoever does not say what they take gets what they send.
  if ((header.get(acceptHeader) ?? "") === "")
    decompressed.set(acceptHeader, header.get(compressionHeader) ?? "");
  decompressed.delete(compressionHeader);
  decompressed.delete("content-length");
  return decompressed;
}
