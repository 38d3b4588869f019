/**
 * Static pages and the health endpoint. They contain no data, so they need no identity. A strict content
 * security policy forbids inline scripts, other origins and frames.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";
import { guidePage } from "./guide-page.ts";
import { pathOf, type HttpRequest, type HttpResponse } from "../rpc/http-request.ts";

/** Absolute path of the file behind each path, such as `/docs`. */
export type PageFiles = Readonly<Record<string, string>>;

/** Responds to GET or HEAD. Rejects before sending anything if the file cannot be read. */
export type Page = (request: HttpRequest, response: HttpResponse) => Promise<void>;

/** By path. */
export type Pages = ReadonlyMap<string, Page>;

/** The page of a request; undefined for others. */
export function pageAt(pages: Pages, request: HttpRequest): Page | undefined {
  return isRead(request) ? pages.get(pathOf(request)) : undefined;
}

/** Whether a browser opens this address, unlike a program that reads data. */
export function isVisit(request: HttpRequest): boolean {
  return isRead(request) && request.headers.accept?.includes("text/html") === true;
}

function isRead({ method }: HttpRequest): boolean {
  return method === "GET" || method === "HEAD";
}

/** Responds to a visit of an address without a page. */
export function sendMissingPage(request: HttpRequest, response: HttpResponse): void {
  response.statusCode = 404;
  const headers = { ...headersOf("/"), "content-type": "text/html; charset=utf-8" };
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  sendBody(missingPage, request, response);
}

const missingPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Not found · svc</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/guide.css">
</head>
<body>
<main>
<h1>Not found</h1>
<p>There is no page at this address. <a href="/">Open svc</a>, or read <a href="/docs/guide">the guide</a>.</p>
<p>Behind a reverse proxy, svc needs its own host name: it does not work below a path.</p>
</main>
</body>
</html>
`;

type Answering = (...to: Parameters<Page>) => Promise<void> | void;

interface LoadedPage {
  readonly bytes: Buffer;
  readonly etag: string;
  /** The compression; absent for plain bytes. */
  readonly coding?: Coding;
}

/** Supported codings, smallest output first, with the suffix of the compressed file. */
const codings = { br: ".br", gzip: ".gz" } as const;
type Coding = keyof typeof codings;

const contentTypes: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  // Pages of the guide, which are served as HTML.
  ".md": "text/html; charset=utf-8",
};

/** Images in the pages' style sheets are data URLs. */
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/** Only Swagger UI assigns HTML. */
const strictPolicy = `${policy}; require-trusted-types-for 'script'; trusted-types 'none'`;

const headers: Readonly<Record<string, string>> = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};

/** The headers of a page. */
function headersOf(path: string): Readonly<Record<string, string>> {
  // Names below /web/ contain a content hash and never change; other paths change with an upgrade.
  const isFixed = path.startsWith("/web/");
  return {
    ...headers,
    "content-security-policy": path === "/docs" ? policy : strictPolicy,
    "cache-control": isFixed ? "public, max-age=31536000, immutable" : "no-cache",
  };
}

/** @param answered called for each page that was sent */
export function createPages(files: PageFiles, answered: (request: HttpRequest) => void): Pages {
  const pages = Object.entries(files).map(([path, file]) => [path, createPage(path, file)] as const);
  const telling =
    (page: Answering): Page =>
    async (request, response) => {
      await page(request, response);
      answered(request);
    };
  return new Map([["/healthz", sendHealth] as const, ...pages].map(([path, page]) => [path, telling(page)]));
}

/** Reads its files at the first request, and caches them. */
function createPage(path: string, file: string): Answering {
  const headers = {
    ...headersOf(path),
    "content-type": contentTypes[extname(file)] ?? "application/octet-stream",
  };
  let loaded: Promise<readonly LoadedPage[]> | undefined;
  return async (request, response) => {
    loaded ??= extname(file) === ".md" ? loadGuidePage(path, file) : loadPage(file);
    // Retry at the next request.
    loaded.catch(() => (loaded = undefined));
    const forms = await loaded;
    const chosen = forms.find(({ coding }) => coding === undefined || takes(request, coding));
    if (chosen === undefined) throw new Error(`${file} has no plain form`);
    send(chosen, forms.length > 1 ? { ...headers, vary: "accept-encoding" } : headers, request, response);
  };
}

function sendHealth(request: HttpRequest, response: HttpResponse): void {
  response.setHeader("content-type", "application/json");
  sendBody('{"status":"ok"}', request, response);
}

/** All codings of a page, plain bytes last. */
async function loadPage(file: string): Promise<LoadedPage[]> {
  const forms: LoadedPage[] = [];
  for (const coding of Object.keys(codings) as Coding[]) {
    const bytes = await readFile(file + codings[coding]).catch(() => undefined);
    if (bytes !== undefined) forms.push({ bytes, etag: etagOf(bytes), coding });
  }
  const bytes = await readFile(file);
  return [...forms, { bytes, etag: etagOf(bytes) }];
}

async function loadGuidePage(path: string, file: string): Promise<LoadedPage[]> {
  const bytes = Buffer.from(guidePage(path, await readFile(file, "utf8")));
  return [{ bytes, etag: etagOf(bytes) }];
}

function etagOf(bytes: Uint8Array): string {
  return `"${createHash("sha256").update(bytes).digest("base64url")}"`;
}

/** Whether the client accepts the coding (RFC 9110, section 12.5.3). */
function takes({ headers }: HttpRequest, coding: Coding): boolean {
  const offered = headers["accept-encoding"];
  const all = (typeof offered === "string" ? offered : "").toLowerCase().split(",");
  return all.some((each) => {
    const [name, quality = ""] = each.split(";", 2);
    return name?.trim() === coding && !/^\s*q=0(\.0*)?\s*$/.test(quality);
  });
}

function send(
  { bytes, etag, coding }: LoadedPage,
  headers: Readonly<Record<string, string>>,
  request: HttpRequest,
  response: HttpResponse,
): void {
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.setHeader("etag", etag);
  if (isKnown(etag, request.headers["if-none-match"])) {
    response.statusCode = 304;
    response.end();
    return;
  }
  if (coding !== undefined) response.setHeader("content-encoding", coding);
  sendBody(bytes, request, response);
}

function sendBody(body: string | Buffer, request: HttpRequest, response: HttpResponse): void {
  response.setHeader("content-length", Buffer.byteLength(body));
  if (request.method === "HEAD") response.end();
  else response.end(body);
}

/** Whether the client has this version (RFC 9110, section 13.1.2). */
function isKnown(etag: string, ifNoneMatch: string | undefined): boolean {
  const known = ifNoneMatch?.split(",").map((tag) => tag.trim().replace(/^W\//, "")) ?? [];
  return known.includes(etag) || known.includes("*");
}
