/** Cleartext HTTP/2 over already accepted sockets. */
import {
  constants,
  createServer,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { TransportLimits } from "./limits.ts";
import { RateBudget } from "../../lib/rate-budget.ts";

export type Http2Handler = (
  request: Http2ServerRequest,
  response: Http2ServerResponse,
  expectsContinue: boolean,
) => void;

export interface Http2Acceptor {
  readonly server: Http2Server;
  /** Closes sessions without streams now, and the others after their last stream. */
  close(): void;
  /** Closes all sessions immediately. */
  destroy(): void;
}

export function createHttp2Acceptor(limits: TransportLimits, handle: Http2Handler): Http2Acceptor {
  const server = createServer({
    settings: {
      maxConcurrentStreams: limits.maxStreamsPerSession,
      maxHeaderListSize: limits.maxHeaderBytes,
    },
    maxHeaderListPairs: limits.maxHeaderCount,
    // nghttp2 enforces this only between two reads; see watchSession (CVE-2023-44487).
    streamResetBurst: limits.resetBudget,
    streamResetRate: limits.resetRefillPerSec,
  });
  const sessions = new Map<ServerHttp2Session, Set<ServerHttp2Stream>>();
  let isClosing = false;
  server.on("session", (session) => {
    const streams = new Set<ServerHttp2Stream>();
    sessions.set(session, streams);
    session.once("close", () => sessions.delete(session));
    watchSession(session, streams, limits, () => {
      // Not earlier: connect-node's client fails on the second GOAWAY that Node sends for a session with open
      // streams.
      if (isClosing) session.close();
    });
  });
  server.on("request", (request, response) => handle(request, response, false));
  server.on("checkContinue", (request: Http2ServerRequest, response: Http2ServerResponse) =>
    handle(request, response, true),
  );
  return {
    server,
    close() {
      isClosing = true;
      for (const [session, streams] of sessions) if (streams.size === 0) session.close();
    },
    destroy() {
      for (const session of sessions.keys()) session.destroy();
    },
  };
}

/**
 * Closes a session that has no stream for too long, even if it sends other frames, and streams without
 * progress.
 */
function watchSession(
  session: ServerHttp2Session,
  streams: Set<ServerHttp2Stream>,
  limits: TransportLimits,
  onIdle: () => void,
): void {
  const endIdle = (): void => {
    if (streams.size === 0) session.destroy();
  };
  const resets = new RateBudget(limits.resetBudget, limits.resetRefillPerSec, () => performance.now());
  let timer = setTimeout(endIdle, limits.headersTimeoutMs);
  session.once("close", () => clearTimeout(timer));
  session.on("stream", (stream) => {
    clearTimeout(timer);
    streams.add(stream);
    boundUnread(stream);
    watchStream(stream, session, limits.idleTimeoutMs);
    stream.once("finish", () => stopUpload(stream));
    stream.once("close", () => {
      streams.delete(stream);
      // One read can open and reset up to 1,800 streams.
      if (stream.rstCode !== constants.NGHTTP2_NO_ERROR && !resets.take())
        session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
      if (streams.size > 0 || session.destroyed) return;
      clearTimeout(timer);
      timer = setTimeout(endIdle, limits.idleTimeoutMs);
      onIdle();
    });
  });
}

/** Limit for unread pieces of a body. Each piece costs about 250 bytes of overhead. */
const maxUnreadPieces = 2_048;

/**
 * Bounds the memory of a request body that is not read yet. The flow-control window of 64 KiB counts only bytes, but each DATA
 * frame of one byte is a piece of its own, and a view that retains the whole buffer of its read.
 */
function boundUnread(stream: ServerHttp2Stream): void {
  const push = stream.push.bind(stream);
  let pieces = 0;
  stream.push = (piece: Uint8Array | null): boolean => {
    if (piece === null) return push(null);
    pieces = stream.readableLength === 0 ? 1 : pieces + 1;
    if (pieces > maxUnreadPieces) {
      stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      return false;
    }
    return push(
      piece.length < piece.buffer.byteLength / 2 ? Buffer.from(new Uint8Array(piece).buffer) : piece,
    );
  };
}

/** As on HTTP/1.1, a handler may be silent, but a peer that should send or read may not. */
function watchStream(stream: ServerHttp2Stream, session: ServerHttp2Session, idleMs: number): void {
  const checkProgress = (): void => {
    // Without a body, its end is never read.
    const isReceived = stream.readableEnded || stream.endAfterHeaders;
    if (stream.writableNeedDrain || !(isReceived || stream.headersSent)) {
      // With NO_ERROR, Node's default, an incomplete response would look complete.
      stream.close(constants.NGHTTP2_CANCEL);
      return;
    }
    stream.setTimeout(idleMs, checkProgress);
    // An open bidirectional stream may be silent, as long as the peer responds to pings.
    if (!isReceived) requirePong(session, idleMs);
  };
  stream.setTimeout(idleMs, checkProgress);
}

function requirePong(session: ServerHttp2Session, waitMs: number): void {
  const timer = setTimeout(() => session.destroy(), waitMs);
  const isAsked = session.ping(() => clearTimeout(timer));
  // Another ping is already pending.
  if (!isAsked) clearTimeout(timer);
}

/** Milliseconds between two checks whether the response was sent. */
const answerSentCheckMs = 5;

/**
 * Tells a client to stop sending after its response (RFC 9113, section 8.1). The rest is not read, so a
 * client that waits for flow-control credit before it reads the response would wait forever.
 */
function stopUpload(stream: ServerHttp2Stream): void {
  if (stream.destroyed || stream.readableEnded) return;
  // Node does not report when the trailers, which follow "finish", are sent. An earlier reset would drop the
  // response.
  if (!stream.closed && stream.state.localClose !== 1) {
    setTimeout(stopUpload, answerSentCheckMs, stream);
    return;
  }
  stream.close(constants.NGHTTP2_NO_ERROR);
  // An unread body would keep the stream and its session open forever.
  stream.destroy();
}
