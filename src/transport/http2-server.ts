/** Cleartext HTTP/2 over sockets that somebody else accepts. */
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
import { RateBudget } from "../lib/rate-budget.ts";

export type Http2Handler = (
  request: Http2ServerRequest,
  response: Http2ServerResponse,
  expectsContinue: boolean,
) => void;

export interface Http2Front {
  readonly server: Http2Server;
  /** Ends each session that has no stream, and the others with their last one. */
  close(): void;
  /** Ends all sessions at once. */
  destroy(): void;
}

export function createHttp2Front(limits: TransportLimits, handle: Http2Handler): Http2Front {
  const server = createServer({
    settings: {
      maxConcurrentStreams: limits.maxStreamsPerSession,
      maxHeaderListSize: limits.maxHeaderBytes,
    },
    maxHeaderListPairs: limits.maxHeaderCount,
    // nghttp2 counts resets, but acts only between two reads: see watchSession (CVE-2023-44487).
    streamResetBurst: limits.resetBudget,
    streamResetRate: limits.resetRefillPerSec,
    maxSessionInvalidFrames: 100,
  });
  const sessions = new Map<ServerHttp2Session, Set<ServerHttp2Stream>>();
  let isClosing = false;
  server.on("session", (session) => {
    const streams = new Set<ServerHttp2Stream>();
    sessions.set(session, streams);
    session.once("close", () => sessions.delete(session));
    watchSession(session, streams, limits, () => {
      // Not earlier: connect-node's client dies of the second GOAWAY that node sends for a session with open streams.
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

/** Ends a session that has no stream for too long (however it keeps the connection busy), and streams that stand still. */
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
    watchStream(stream, session, limits.idleTimeoutMs);
    stream.once("finish", () => stopUpload(stream));
    stream.once("close", () => {
      streams.delete(stream);
      // One read brings up to 1,800 streams that are reset in the same breath.
      if (stream.rstCode !== constants.NGHTTP2_NO_ERROR && !resets.take())
        session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
      if (streams.size > 0 || session.destroyed) return;
      clearTimeout(timer);
      timer = setTimeout(endIdle, limits.idleTimeoutMs);
      onIdle();
    });
  });
}

/** As on HTTP/1.1: silence is the handler's right, not that of a peer that should send or read. */
function watchStream(stream: ServerHttp2Stream, session: ServerHttp2Session, idleMs: number): void {
  const look = (): void => {
    // Nobody reads the end of a body that there is none of.
    const isReceived = stream.readableEnded || stream.endAfterHeaders;
    if (stream.writableNeedDrain || !(isReceived || stream.headersSent)) {
      // With NO_ERROR, node's default, half an answer looks to its reader as if it were whole.
      stream.close(constants.NGHTTP2_CANCEL);
      return;
    }
    stream.setTimeout(idleMs, look);
    // Both have begun to speak and neither has ended: nothing need be said, as long as somebody is there.
    if (!isReceived) askForSign(session, idleMs);
  };
  stream.setTimeout(idleMs, look);
}

function askForSign(session: ServerHttp2Session, waitMs: number): void {
  const timer = setTimeout(() => session.destroy(), waitMs);
  const isAsked = session.ping(() => clearTimeout(timer));
  // Others have asked, and look.
  if (!isAsked) clearTimeout(timer);
}

/** How often an answer that is on its way is looked at. */
const answerSentCheckMs = 5;

/**
 * Tells a client whose call is answered to stop sending (RFC 9113, 8.1). Nobody reads the rest: without this a client
 * that waits for room in the stream's window before it looks at the answer would wait for ever.
 */
function stopUpload(stream: ServerHttp2Stream): void {
  if (stream.destroyed || stream.readableEnded) return;
  // Node says nothing when the trailers, which follow "finish", are out; a reset before them takes the answer along.
  if (!stream.closed && stream.state.localClose !== 1) {
    setTimeout(stopUpload, answerSentCheckMs, stream);
    return;
  }
  stream.close(constants.NGHTTP2_NO_ERROR);
  // What came of the body and nobody reads would keep the stream, and with it the session, for ever.
  stream.destroy();
}
