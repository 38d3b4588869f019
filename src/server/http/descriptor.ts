import type { Server, Socket } from "node:net";

/**
 * The descriptor behind a socket or a listener; undefined for a closed one. Node has no public API for it.
 */
export function descriptorOf(handled: Server | Socket): number | undefined {
  const { _handle: handle } = handled as { _handle?: { fd?: number } | null };
  const fd = handle?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}
