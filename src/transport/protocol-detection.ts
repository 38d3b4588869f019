/** Tells HTTP/2 from HTTP/1.1 by the first bytes of a connection. */
import type { Socket } from "node:net";

/** How an HTTP/2 client begins (RFC 9113, 3.4); no HTTP/1.1 method begins like it. */
const preface = Buffer.from("PRI");

/**
 * Waits for enough bytes to tell, gives them back to the socket and calls `onDetected` with a look at them. A connection that
 * says nothing in time, or ends before, is destroyed: no server knows it yet, so no other timer watches it.
 */
export function detectProtocol(
  socket: Socket,
  timeoutMs: number,
  onDetected: (protocol: "http1" | "http2", head: Buffer) => void,
): void {
  let head: Buffer = Buffer.alloc(0);
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  const onEnd = (): void => {
    socket.destroy();
  };
  const onClose = (): void => clearTimeout(timer);
  // The servers add listeners of their own; until then an error must not be an uncaught one.
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
    onDetected(isPreface ? "http2" : "http1", head);
  };
  socket.on("data", onData).on("end", onEnd).on("close", onClose).on("error", onError);
}
