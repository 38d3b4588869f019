/**
 * Messages on their way to Connect, which parses each in one piece: one that has more in it than a bound is refused before
 * (T 57), and those that are large or packed are parsed in turns of their users. What is packed is unpacked here: how much is
 * in it shows only then.
 */
import type { DescMessage } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ConnectRouter } from "@connectrpc/connect";
import type { Compression, UniversalHandler, UniversalServerRequest } from "@connectrpc/connect/protocol";
import { maxStructure, tooMuchStructure } from "../errors.ts";
import { smallBodyBytes } from "../lib/body-turns.ts";
import type { FairTurns } from "../lib/fair-turns.ts";
import { hasMoreStructure } from "../lib/json-structure.ts";
import { connectErrorOf } from "./connect-errors.ts";
import { formOf } from "./message-form.ts";
import type { MessageForm } from "./message-form.ts";
import { MessageStructure } from "./message-structure.ts";
import { anonymous, shareName, userContextKey } from "./user-context.ts";

export interface BoundedMessagesOptions {
  /** Of one message, unpacked. To refuse larger ones is Connect's. */
  readonly maxMessageBytes: number;
  /** The ways of packing that Connect knows, too. */
  readonly packings: readonly Compression[];
  readonly turns: FairTurns;
}

/** `routes`, with handlers that get no message of more than {@link maxStructure}. */
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
    if (request.method === "GET") await refuseLargeQuery(request, options.packings);
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

/** A query holds little, but what is packed in it may be large: nobody sends that. @throws SvcError `body_too_large` */
async function refuseLargeQuery(
  { url }: UniversalServerRequest,
  packings: readonly Compression[],
): Promise<void> {
  const query = new URL(url).searchParams;
  const packing = packings.find(({ name }) => name === query.get("compression"));
  if (packing === undefined) return;
  try {
    await packing.decompress(base64Decode(query.get("message") ?? ""), smallBodyBytes);
  } catch (error) {
    if (error instanceof ConnectError && error.code === Code.ResourceExhausted) throw tooMuchStructure();
    // Not to be read, which is Connect's to say.
  }
}

/** Flags and length before a message of a stream, and of gRPC. */
const envelopeBytes = 5;
const packedFlag = 1;

/** The messages of one request. */
class BoundedMessages {
  /** What the request says of the messages as they are handed on. */
  readonly header: Headers;
  readonly #form: MessageForm;
  readonly #input: DescMessage;
  readonly #maxBytes: number;
  readonly #packing: Compression | undefined;
  readonly #structure: MessageStructure;
  readonly #turn: () => Promise<void> | undefined;

  constructor(
    { header, contextValues }: UniversalServerRequest,
    form: MessageForm,
    input: DescMessage,
    { maxMessageBytes, packings, turns }: BoundedMessagesOptions,
    structure: MessageStructure,
  ) {
    this.#form = form;
    this.#input = input;
    this.#maxBytes = maxMessageBytes;
    this.#packing = packings.find(({ name }) => name === header.get(form.packingHeader));
    this.#structure = structure;
    const share = shareName(contextValues?.get(userContextKey) ?? anonymous);
    this.#turn = () => turns.wait(share);
    this.header = this.#packing === undefined || form.isEnveloped ? header : unpackedHeader(header, form);
  }

  of(body: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    return this.#form.isEnveloped ? this.#enveloped(body) : this.#bare(body);
  }

  async *#bare(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const held: Uint8Array[] = [];
    let sizeBytes = 0;
    for await (const piece of body) {
      held.push(piece);
      sizeBytes += piece.length;
      if (sizeBytes > this.#maxBytes) yield* held.splice(0);
    }
    if (sizeBytes <= this.#maxBytes) yield await this.#checked(Buffer.concat(held), this.#packing);
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

  /** Little can be in a small message that is not packed. */
  #isToBeChecked(envelope: Buffer): boolean {
    const size = envelope.readUInt32BE(1);
    const isPacked = this.#packing !== undefined && ((envelope[0] ?? 0) & packedFlag) !== 0;
    return size > (isPacked ? 0 : smallBodyBytes) && size <= this.#maxBytes;
  }

  async #reEnveloped(message: Buffer): Promise<Buffer> {
    const flags = message[0] ?? 0;
    const isPacked = (flags & packedFlag) !== 0;
    const bytes = await this.#checked(message.subarray(envelopeBytes), isPacked ? this.#packing : undefined);
    await this.#turn();
    const envelope = Buffer.alloc(envelopeBytes);
    envelope[0] = flags & ~packedFlag;
    envelope.writeUInt32BE(bytes.length, 1);
    return Buffer.concat([envelope, bytes]);
  }

  /** @throws ConnectError `resource_exhausted`, for us `body_too_large` */
  async #checked(message: Buffer, packing: Compression | undefined): Promise<Buffer> {
    let bytes = message;
    if (packing !== undefined) {
      bytes = Buffer.from(await packing.decompress(message as Uint8Array<ArrayBuffer>, this.#maxBytes));
      await this.#turn();
    }
    const hasMore = this.#form.isJson
      ? hasMoreStructure(bytes.toString("latin1"), maxStructure)
      : this.#structure.hasMore(this.#input, bytes, maxStructure);
    if (hasMore) throw connectErrorOf(tooMuchStructure());
    return bytes;
  }
}

function unpackedHeader(header: Headers, { packingHeader, acceptHeader }: MessageForm): Headers {
  const unpacked = new Headers(header);
  // Whoever does not say what they take gets what they send.
  if ((header.get(acceptHeader) ?? "") === "") unpacked.set(acceptHeader, header.get(packingHeader) ?? "");
  unpacked.delete(packingHeader);
  unpacked.delete("content-length");
  return unpacked;
}
