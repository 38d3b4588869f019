/**
 * Static pages, and the sign of life: they hold no data, so that nobody has to say who they are (D8). For browsers of the
 * strictest kind: nothing inline, nothing from elsewhere, in no frame.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";
import { pathOf } from "./http.ts";
import type { HttpRequest, HttpResponse } from "./http.ts";

/** Absolute path of the file behind each path, such as `/docs`. */
export type PageFiles = Readonly<Record<string, string>>;

/** Answers a GET or HEAD. Rejects, with nothing sent, when its file cannot be read. */
export type Page = (request: HttpRequest, response: HttpResponse) => Promise<void>;

/** By path. */
export type Pages = ReadonlyMap<string, Page>;

/** The page that a request reads, if it does. */
export function pageAt(pages: Pages, request: HttpRequest): Page | undefined {
  return request.method === "GET" || request.method === "HEAD" ? pages.get(pathOf(request)) : undefined;
}

type Answering = (...to: Parameters<Page>) => Promise<void> | void;

interface LoadedPage {
  readonly bytes: Uint8Array;
  readonly etag: string;
}

const contentTypes: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
};

const headers: Readonly<Record<string, string>> = {
  // Images in the pages' style sheets are data URLs.
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  // Kept, and asked about each time: an upgraded daemon has other pages.
  "cache-control": "no-cache",
};

/** @param answered hears of each page that was sent */
export function createPages(files: PageFiles, answered: (request: HttpRequest) => void): Pages {
  const pages = Object.entries(files).map(([path, file]) => [path, createPage(file)] as const);
  const telling =
    (page: Answering): Page =>
    async (request, response) => {
      await page(request, response);
      answered(request);
    };
  return new Map([["/healthz", sendHealth] as const, ...pages].map(([path, page]) => [path, telling(page)]));
}

/** Its file is read at the first request, and kept. */
function createPage(file: string): Answering {
  let loaded: Promise<LoadedPage> | undefined;
  return async (request, response) => {
    loaded ??= loadPage(file);
    // A file that could not be read may be there the next time.
    loaded.catch(() => (loaded = undefined));
    send(await loaded, extname(file), request, response);
  };
}

function sendHealth(request: HttpRequest, response: HttpResponse): void {
  const body = '{"status":"ok"}';
  response.setHeader("content-type", "application/json");
  response.setHeader("content-length", body.length);
  if (request.method === "HEAD") response.end();
  else response.end(body);
}

async function loadPage(file: string): Promise<LoadedPage> {
  const bytes = await readFile(file);
  return { bytes, etag: `"${createHash("sha256").update(bytes).digest("base64url")}"` };
}

function send(
  { bytes, etag }: LoadedPage,
  extension: string,
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
  response.setHeader("content-type", contentTypes[extension] ?? "application/octet-stream");
  response.setHeader("content-length", bytes.length);
  if (request.method === "HEAD") response.end();
  else response.end(bytes);
}

/** Whether the client has this version (RFC 9110, section 13.1.2). */
function isKnown(etag: string, ifNoneMatch: string | undefined): boolean {
  const known = ifNoneMatch?.split(",").map((tag) => tag.trim().replace(/^W\//, "")) ?? [];
  return known.includes(etag) || known.includes("*");
}
