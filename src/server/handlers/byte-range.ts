/** Byte ranges that REST clients request (RFC 9110, section 14.2). */
import type { HandlerContext } from "@connectrpc/connect";

/** From `start` to `end`, excluding `end`. */
export interface ByteSpan {
  readonly start: number;
  readonly end: number;
}

/**
 * Undefined for the whole content; also for several ranges, an invalid range, or one after the end, which may
 * be answered with the whole content.
 */
export function requestedSpan(context: HandlerContext, sizeBytes: number): ByteSpan | undefined {
  if (context.protocolName !== "rest") return undefined;
  const header = context.requestHeader.get("range") ?? "";
  const [, first = "", last = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header) ?? [];
  if (first === "" && last === "") return undefined;
  const start = first === "" ? Math.max(0, sizeBytes - Number(last)) : Number(first);
  const end = first === "" || last === "" ? sizeBytes : Math.min(sizeBytes, Number(last) + 1);
  return start < end ? { start, end } : undefined;
}

/** @param isPart whether a range was requested */
export function setContentRange(
  context: HandlerContext,
  { start, end }: ByteSpan,
  sizeBytes: number,
  isPart: boolean,
): void {
  if (context.protocolName !== "rest") return;
  const { responseHeader } = context;
  responseHeader.set("accept-ranges", "bytes");
  responseHeader.set("content-length", String(end - start));
  if (isPart) responseHeader.set("content-range", `bytes ${start}-${end - 1}/${sizeBytes}`);
}
