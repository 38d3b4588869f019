/** `http`: one request; redirects are followed. A status of 400 or above fails the run. */
import type { LookupAddress } from "node:dns";
import { isIP } from "node:net";
import { SvcError } from "../../errors.ts";
import { unlessAborted } from "../../lib/abort.ts";
import { capText, outputCapBytes } from "../runs/capped-output.ts";
import type { ActionResult, ActionWork, PlainAction } from "./action.ts";
import { AddressPolicy } from "./address-policy.ts";
import { exchange, type Answer } from "./http-exchange.ts";
import { harmlessHeaders, maskSecrets } from "./header-secrets.ts";
import type { JobAction } from "../jobs/job.ts";

const maxRedirects = 10;

export interface HttpOptions {
  /** All addresses of a host name. */
  lookup: (hostname: string) => Promise<readonly LookupAddress[]>;
}

/** A request, changed by redirects. */
interface Step {
  url: URL;
  method: string;
  headers: Readonly<Record<string, string>>;
  body: string;
}

export function createHttpAction({ lookup }: HttpOptions): PlainAction {
  const policy = new AddressPolicy();

  /** The addresses of a URL's host. All are checked, because any may be used. */
  async function addressesOf({ hostname }: URL, work: ActionWork): Promise<readonly LookupAddress[]> {
    // The URL parser has normalized 0x7f.1, 017700000001 and 2130706433.
    const literal = hostname.replace(/^\[|\]$/g, "");
    const family = isIP(literal);
    const addresses =
      family === 0 ? await unlessAborted(lookup(hostname), work.signal) : [{ address: literal, family }];
    const blocked = work.isRoot ? undefined : addresses.find(({ address }) => policy.isBlocked(address));
    if (blocked !== undefined) throw addressDenied(hostname, blocked.address);
    return addresses;
  }

  async function send(step: Step, work: ActionWork): Promise<Answer> {
    try {
      const addresses = await addressesOf(step.url, work);
      return await exchange({ ...step, addresses, signal: work.signal }, outputCapBytes);
    } catch (error) {
      work.signal.throwIfAborted();
      throw error instanceof SvcError ? error : unreachable(step.url, error);
    }
  }

  return async ({ action }, work) => {
    let step = firstStep(action);
    for (let redirects = 0; ; redirects += 1) {
      const answer = await send(step, work);
      const next = redirectOf(step, answer);
      if (next === undefined) return resultOf(step, answer, action, work);
      if (redirects === maxRedirects) {
        const error = `more than ${maxRedirects} redirects, the last one from ${step.url.origin}`;
        return { error, httpStatus: answer.status };
      }
      step = next;
    }
  };
}

function firstStep({ url = "", method = "GET", headers = {}, body = "" }: JobAction): Step {
  return { url: parseUrl(url), method: method === "" ? "GET" : method, headers, body };
}

function resultOf(step: Step, answer: Answer, action: JobAction, work: ActionWork): ActionResult {
  const { status: httpStatus, body, isTruncated, cutBy } = answer;
  work.write(maskSecrets(body.toString("utf8"), action.headers ?? {}, isTruncated));
  const result = { httpStatus, isTruncated };
  if (cutBy !== undefined)
    return { ...result, error: `${step.url.origin} sent an incomplete response: ${cutBy}` };
  return httpStatus < 400
    ? result
    : { ...result, error: `${step.url.origin} responded with status ${httpStatus}` };
}

/** The next request by the Fetch standard (HTTP-redirect fetch); undefined without a redirect. */
function redirectOf(step: Step, { status, location }: Answer): Step | undefined {
  if (![301, 302, 303, 307, 308].includes(status) || location === "") return undefined;
  const url = parseUrl(location, step.url);
  const isSameOrigin = url.origin === step.url.origin;
  const becomesGet = (status === 303 && step.method !== "HEAD") || (status < 303 && step.method === "POST");
  const headers = isSameOrigin ? step.headers : harmlessHeaders(step.headers);
  if (!becomesGet) return { ...step, url, headers };
  const withoutBody = Object.entries(headers).filter(([name]) => !name.toLowerCase().startsWith("content-"));
  return { url, method: "GET", headers: Object.fromEntries(withoutBody), body: "" };
}

/** @throws SvcError for anything but an http or https URL */
function parseUrl(text: string, base?: URL): URL {
  const url = URL.parse(text, base?.href);
  if (url !== null && /^https?:$/.test(url.protocol)) return url;
  // Not quoted, because a query may contain a key.
  const what = base === undefined ? "the url" : `${base.origin} redirects to something that`;
  throw new SvcError("invalid_request", `${what} is not a valid http:// or https:// URL`);
}

function addressDenied(hostname: string, address: string): SvcError {
  const where = hostname.includes(address) ? address : `${hostname} (${address})`;
  const message = `${where} is the host itself or its own network, which only root's jobs may call`;
  return new SvcError("denied", message);
}

function unreachable(url: URL, error: unknown): SvcError {
  const { text } = capText(whyOf(error));
  return new SvcError("unavailable", `${url.origin} cannot be reached: ${text}`, {
    cause: error,
  });
}

/** There is one error per tried address. */
function whyOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(whyOf).join("; ");
  return error instanceof Error ? error.message : String(error);
}
