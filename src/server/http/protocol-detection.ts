/** Distinguishes HTTP/2 from HTTP/1.1 by the first bytes of a connection. */
import type { Socket } from "node:net";

/** The start of the HTTP/2 preface (RFC 9113, section 3.4); no HTTP/1.1 method starts with it. */
const preface = Buffer.from("PRI");

/**
 * Waits for enough bytes, returns them to the socket, and calls `onDetected`. Destroys a connection
 * that sends nothing in time or ends before, because no server's timer covers it yet.
 */
export function detectProtocol(
  socket: Socket,
  timeoutMs: number,
  onDetected: (protocol: "http1" | "http2") => void,
): void {
  let head: Buffer = Buffer.alloc(0);
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  const onEnd = (): void => {
    socket.destroy();
  };
  const onClose = (): void => clearTimeout(timer);
  // Until the servers add listeners, an error must not crash the process.
  const onError = (): void => undefined;
  const onData = (chunk: Buffer): void => {
    head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    const compared = Math.min(head.length, preface.length);
    const isPreface = head.compare(preface, 0, compared, 0, compared) === 0;
    if (isPreface && head.length < preface.length) return;
    clearTimeout(timer);
    socket.pause();
    socket.off("data", onData).off("end", onEnd).off("close", onClose).off("error", onError);
    socket.unshift(head);
    onDetected(isPreface ? "http2" : "http1");
  };
  socket.on("data", onData).on("end", onEnd).on("close", onClose).on("error", onError);
}
