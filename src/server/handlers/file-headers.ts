/** Headers about the content of files, where the protocol is REST: ranges, entity tags, names (RFC 9110, RFC 6266). */
import type { HandlerContext } from "@connectrpc/connect";
import type { ReadFileRequest } from "../../../gen/svc/v1/file_pb.ts";
import type { HostContent, ReadRange } from "../../run-as/host-work.ts";

/** The requested range: from the request's fields, else from the header. */
export function rangeOf({ offset, length }: ReadFileRequest, context: HandlerContext): ReadRange {
  const requested = { offset: Number(offset), length: length === undefined ? undefined : Number(length) };
  if (!isRest(context) || requested.offset > 0 || requested.length !== undefined) return requested;
  const { requestHeader } = context;
  const [, first = "", last = ""] =
    /^bytes=(\d{0,15})-(\d{0,15})$/.exec(requestHeader.get("range") ?? "") ?? [];
  // Several ranges may be answered with the whole file.
  if ((first === "" && last === "") || (first !== "" && last !== "" && Number(last) < Number(first)))
    return requested;
  const tag = untagged(requestHeader.get("if-range") ?? "");
  const ifTag = requestHeader.has("if-range") ? { ifTag: tag } : {};
  if (first === "") return { offset: Number(last), fromEnd: true, ...ifTag };
  const spanLength = last === "" ? undefined : Number(last) - Number(first) + 1;
  return { offset: Number(first), length: spanLength ?? Number.MAX_SAFE_INTEGER, ...ifTag };
}

/** Sets the headers of a file response: length, range, entity tag and file name. */
export function contentHeaders(
  context: HandlerContext,
  { entry, start, length }: HostContent,
  { offset, fromEnd = false, length: requestedLength }: ReadRange,
): void {
  if (!isRest(context)) return;
  const { responseHeader } = context;
  const { name, sizeBytes, tag, modifiedMs } = entry;
  responseHeader.set("content-length", String(length));
  responseHeader.set("accept-ranges", "bytes");
  responseHeader.set("last-modified", new Date(modifiedMs).toUTCString());
  responseHeader.set("content-disposition", `attachment; filename*=UTF-8''${encoded(name)}`);
  if (tag !== "") responseHeader.set("etag", `"${tag}"`);
  const isPart =
    context.requestHeader.has("range") && (fromEnd || requestedLength !== undefined) && start >= 0;
  if (isPart && length > 0 && (fromEnd || start === offset) && length < sizeBytes) {
    responseHeader.set("content-range", `bytes ${start}-${start + length - 1}/${sizeBytes}`);
  }
}

/** The first entity tag of `If-Match`; `*` for any file; empty without the header. */
export function ifMatchOf(context: HandlerContext): string {
  if (!isRest(context)) return "";
  return untagged((context.requestHeader.get("if-match") ?? "").split(",", 1)[0] ?? "");
}

export function isRest({ protocolName }: HandlerContext): boolean {
  return protocolName === "rest";
}

/** Weak and invalid tags match nothing. */
function untagged(text: string): string {
  const trimmed = text.trim();
  return /^"(.+)"$/.exec(trimmed)?.[1] ?? trimmed;
}

/** Encoded by RFC 8187. */
function encoded(name: string): string {
  return encodeURIComponent(name).replaceAll(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16)}`);
}
