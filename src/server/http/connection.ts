/** One accepted connection: its origin, its owner's share, and its pending requests. */
import { ServerResponse } from "node:http";
import { constants } from "node:http2";
import { isIPv4, type Socket } from "node:net";
import { declaredSize } from "../../lib/http-messages.ts";
import type { HttpResponse } from "../rpc/http-request.ts";
import type { Origin } from "./request-source.ts";

/** The share of the connections that a connection counts toward. */
export interface Share {
  /** `root`: peers of uid 0; `known`: a uid or a token; `unknown`: not identified yet. */
  readonly kind: "root" | "known" | "unknown";
  /** Connections of one name count together. */
  readonly name: string;
}

export class Connection {
  readonly socket: Socket;
  readonly origin: Origin;
  share: Share;
  /** Whether the event loop has not read data that arrived before the connection was opened. */
  isNew = true;
  /** Whether received data waits in its user's queue. */
  isQueued = false;
  /** Whether data is being parsed from its user's queue. */
  isInParser = false;
  /** Remaining bytes of a body with a declared size. */
  bodyLeftBytes = 0;
  /** Whether the client has sent a request. */
  hasSentRequest = false;
  /** Called when a request has ended. */
  onEnd: (() => void) | undefined;
  /** Called when the connection no longer carries HTTP. */
  onHold: (() => void) | undefined;
  readonly #pending = new Set<HttpResponse>();
  #isHeld = false;

  constructor(socket: Socket, origin: Origin) {
    this.socket = socket;
    this.origin = origin;
    this.share = shareOf(origin);
  }

  /** Registers a request. */
  begin(response: HttpResponse): void {
    this.hasSentRequest = true;
    this.#pending.add(response);
    if (response instanceof ServerResponse) this.bodyLeftBytes = declaredSize(response.req) ?? 0;
  }

  /** Called when the response is sent, or the client has left. */
  end(response: HttpResponse): void {
    this.#pending.delete(response);
    this.onEnd?.();
  }

  /** Requests without a complete response. */
  get pending(): number {
    return this.#pending.size;
  }

  /** Whether further data can be processed: the rest of a body, or the next request. */
  get isReadyForMore(): boolean {
    if (this.socket.writableNeedDrain) return false;
    for (const { req } of this.#pending) {
      if (req.complete || req.readableLength >= req.readableHighWaterMark) return false;
    }
    return true;
  }

  /** Releases the connection to another protocol, which enforces its own timeouts. */
  hold(): void {
    this.#isHeld = true;
    this.onEnd = undefined;
    this.onHold?.();
  }

  /** Whether the client may have sent data that the daemon has not read. */
  get isUnread(): boolean {
    return this.isNew || this.isQueued;
  }

  /** Whether the client waits for the daemon, rather than the daemon for the client. */
  get isAtWork(): boolean {
    for (const response of this.#pending) if (isReceived(response) && !needsDrain(response)) return true;
    return this.#isHeld;
  }
}

function isReceived(response: HttpResponse): boolean {
  if (response instanceof ServerResponse) return response.req.complete;
  const { stream } = response;
  if (stream.destroyed) return false;
  // Without a body, its end is never read; on bidirectional streams the client may be silent.
  if (stream.readableEnded || stream.endAfterHeaders || stream.headersSent) return true;
  // The body has arrived, but the daemon has not read it.
  return stream.state.state === constants.NGHTTP2_STREAM_STATE_HALF_CLOSED_REMOTE;
}

function needsDrain(response: HttpResponse): boolean {
  return response instanceof ServerResponse ? response.writableNeedDrain : response.stream.writableNeedDrain;
}

/** The name of the share of a user on the socket. */
export const peerName = (uid: number): string => `uid ${uid}`;

/** All local users can use every loopback address, and the owner of an IPv6 address has its whole /64. */
export function shareOf(origin: Origin): Share {
  if (origin.kind === "peer")
    return { kind: origin.uid === 0 ? "root" : "known", name: peerName(origin.uid) };
  const address = origin.address.replace(/^::ffff:(?=[0-9.]+$)/, "");
  if (isIPv4(address)) return { kind: "unknown", name: address.startsWith("127.") ? "loopback" : address };
  return { kind: "unknown", name: address === "::1" ? "loopback" : networkOf(address) };
}

/** The first 64 bits of an IPv6 address in the kernel's notation. */
function networkOf(address: string): string {
  const [head = "", tail] = address.split("%", 1)[0]?.split("::") ?? [];
  const [before, after] = [head, tail ?? ""].map((part) => part.split(":").filter((group) => group !== ""));
  const missing = tail === undefined ? 0 : 8 - (before?.length ?? 0) - (after?.length ?? 0);
  return [...(before ?? []), ...Array<string>(missing).fill("0"), ...(after ?? [])].slice(0, 4).join(":");
}
