/** One accepted connection: where it comes from, whose share it is of, and whether anything is being done for it. */
import { ServerResponse } from "node:http";
import { constants } from "node:http2";
import { isIPv4, type Socket } from "node:net";
import { declaredSize } from "../lib/http-messages.ts";
import type { HttpResponse } from "./http.ts";
import type { Origin } from "./identity.ts";

/** Whose share of the connections one is of. */
export interface Share {
  /** `root`: peers of uid 0; `known`: a uid or a token; `unknown`: nobody has said yet who it is. */
  readonly kind: "root" | "known" | "unknown";
  /** Connections of one name count together. */
  readonly name: string;
}

export class Connection {
  readonly socket: Socket;
  readonly origin: Origin;
  share: Share;
  /** Whether the loop has not yet had the chance to read what was sent before it was let in. */
  isNew = true;
  /** Whether what has come waits for a turn of its user. */
  awaitsTurn = false;
  /** Whether what comes now is parsed in a turn of its user. */
  isInTurn = false;
  /** What has still to come of a body whose size was declared. */
  bodyLeftBytes = 0;
  /** Whether its client has asked for anything yet. */
  hasAsked = false;
  /** Called when a request has ended. */
  onEnd: (() => void) | undefined;
  /** Called when it carries HTTP no longer. */
  onHold: (() => void) | undefined;
  readonly #underWay = new Set<HttpResponse>();
  #isHeld = false;

  constructor(socket: Socket, origin: Origin) {
    this.socket = socket;
    this.origin = origin;
    this.share = shareOf(origin);
  }

  /** A request has come. */
  begin(response: HttpResponse): void {
    this.hasAsked = true;
    this.#underWay.add(response);
    if (response instanceof ServerResponse) this.bodyLeftBytes = declaredSize(response.req) ?? 0;
  }

  /** Its answer is out, or nobody waits for it any more. */
  end(response: HttpResponse): void {
    this.#underWay.delete(response);
    this.onEnd?.();
  }

  /** Whether more of what its client sends can be used: the rest of a body that is being read, or the next request. */
  get isReadyForMore(): boolean {
    if (this.socket.writableNeedDrain) return false;
    for (const { req } of this.#underWay) {
      if (req.complete || req.readableLength >= req.readableHighWaterMark) return false;
    }
    return true;
  }

  /** It carries something else than HTTP from now on, which looks after itself. */
  hold(): void {
    this.#isHeld = true;
    this.onEnd = undefined;
    this.onHold?.();
  }

  /** Whether its client may have asked for something that the daemon has not looked at. */
  get isUnread(): boolean {
    return this.isNew || this.awaitsTurn;
  }

  /** Whether its client waits for the daemon, and not the daemon for its client to send or to read. */
  get isAtWork(): boolean {
    for (const response of this.#underWay) if (isReceived(response) && !needsDrain(response)) return true;
    return this.#isHeld;
  }
}

function isReceived(response: HttpResponse): boolean {
  if (response instanceof ServerResponse) return response.req.complete;
  const { stream } = response;
  if (stream.destroyed) return false;
  // Nobody reads the end of a body that there is none of; and where both speak, its client need not for a while.
  if (stream.readableEnded || stream.endAfterHeaders || stream.headersSent) return true;
  // It has come, and the daemon has not read it.
  return stream.state.state === constants.NGHTTP2_STREAM_STATE_HALF_CLOSED_REMOTE;
}

function needsDrain(response: HttpResponse): boolean {
  return response instanceof ServerResponse ? response.writableNeedDrain : response.stream.writableNeedDrain;
}

/** The name of the share of a user on the socket. */
export const peerName = (uid: number): string => `uid ${uid}`;

/** Everybody on this machine has all addresses of loopback, and whoever has an IPv6 address has its whole /64. */
export function shareOf(origin: Origin): Share {
  if (origin.kind === "peer")
    return { kind: origin.uid === 0 ? "root" : "known", name: peerName(origin.uid) };
  const address = origin.address.replace(/^::ffff:(?=[0-9.]+$)/, "");
  if (isIPv4(address)) return { kind: "unknown", name: address.startsWith("127.") ? "loopback" : address };
  return { kind: "unknown", name: address === "::1" ? "loopback" : networkOf(address) };
}

/** The first 64 bits of an IPv6 address, as the kernel spells it. */
function networkOf(address: string): string {
  const [head = "", tail] = address.split("%", 1)[0]?.split("::") ?? [];
  const [before, after] = [head, tail ?? ""].map((part) => part.split(":").filter((group) => group !== ""));
  const missing = tail === undefined ? 0 : 8 - (before?.length ?? 0) - (after?.length ?? 0);
  return [...(before ?? []), ...Array<string>(missing).fill("0"), ...(after ?? [])].slice(0, 4).join(":");
}
