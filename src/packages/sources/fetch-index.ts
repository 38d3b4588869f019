/** Fetches an index file by https, or by http on this host. */
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { SvcError } from "../../errors.ts";
import { limitBytes } from "../../lib/byte-streams.ts";
import { isLoopback } from "../git/git-url.ts";
import { maxIndexBytes } from "./source-index.ts";

const maxRedirects = 5;

/** Whether a source's URL refers to an index file: http or https, and the path ends in `.yaml` or `.yml`. */
export function isIndexUrl(url: string): boolean {
  return /^https?:\/\/[^?#]*\.ya?ml$/.test(url);
}

/**
 * Returns the text of an index.
 * @throws SvcError `unavailable` (also on a timeout), `canceled`.
 */
export async function fetchIndex(url: string, timeoutMs: number, signal?: AbortSignal): Promise<string> {
  const deadline = AbortSignal.timeout(timeoutMs);
  const ending = signal ? AbortSignal.any([signal, deadline]) : deadline;
  try {
    return await readText(await follow(url, ending));
  } catch (error) {
    if (signal?.aborted) throw new SvcError("canceled", `fetching ${url} was canceled`);
    if (error instanceof SvcError) throw error;
    const why = deadline.aborted ? `did not respond within ${timeoutMs} ms` : "cannot be reached";
    throw new SvcError("unavailable", `${url} ${why}`, { cause: error });
  }
}

/** Follows redirects itself: each target must be as safe as the first. Only a source on this host may redirect to this host. */
async function follow(url: string, signal: AbortSignal): Promise<Response> {
  let target = new URL(url);
  const isOnThisHost = target.protocol === "http:";
  for (let hop = 0; hop <= maxRedirects; hop++) {
    if (target.protocol !== "https:" && !(isOnThisHost && isLocalHttp(target))) {
      throw failed(`${target.origin} does not use https`);
    }
    const response = await fetch(target, {
      redirect: "manual",
      signal,
      headers: { accept: "application/yaml, text/*" },
    });
    const location = response.headers.get("location");
    if (response.status < 300 || response.status > 399 || location === null) {
      if (response.ok) return response;
      await response.body?.cancel();
      throw failed(`${url} responded with status ${response.status}`);
    }
    await response.body?.cancel();
    target = new URL(location, target);
  }
  throw failed(`${url} redirects more than ${maxRedirects} times`);
}

function isLocalHttp({ protocol, hostname }: URL): boolean {
  return protocol === "http:" && isLoopback(hostname);
}

async function readText({ body }: Response): Promise<string> {
  if (body === null) return "";
  const tooLong = (): Error => failed(`the index is too large (limit ${maxIndexBytes} bytes)`);
  return (await buffer(limitBytes(Readable.fromWeb(body), maxIndexBytes, tooLong))).toString();
}

function failed(message: string): SvcError<"unavailable"> {
  return new SvcError("unavailable", message);
}
