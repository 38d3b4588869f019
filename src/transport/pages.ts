/**
 * Static pages: files that hold no data, so that nobody has to say who they are (D8). For browsers of the strictest
 * kind: nothing inline, nothing from elsewhere, in no frame.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";
import type { HttpRequest, HttpResponse } from "./http.ts";

/** Absolute path of the file behind each path, such as `/docs`. */
export type PageFiles = Readonly<Record<string, string>>;

export interface Pages {
  /**
   * Answers a GET or HEAD of a page; undefined when the path is none.
   * The promise rejects, with nothing sent, when the file cannot be read.
   */
  answer(path: string, request: HttpRequest, response: HttpResponse): Promise<void> | undefined;
}

interface Page {
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

/** Files are read at their first request, and kept. */
export function createPages(files: PageFiles): Pages {
  const loaded = new Map<string, Promise<Page>>();
  const load = (file: string): Promise<Page> => {
    let page = loaded.get(file);
    if (page === undefined) {
      page = loadPage(file);
      // A file that could not be read may be there the next time.
      page.catch(() => loaded.delete(file));
      loaded.set(file, page);
    }
    return page;
  };
  return {
    answer(path, request, response) {
      const isRead = request.method === "GET" || request.method === "HEAD";
      const file = isRead && Object.hasOwn(files, path) ? files[path] : undefined;
      return file === undefined
        ? undefined
        : load(file).then((page) => send(page, extname(file), request, response));
    },
  };
}

async function loadPage(file: string): Promise<Page> {
  const bytes = await readFile(file);
  return { bytes, etag: `"${createHash("sha256").update(bytes).digest("base64url")}"` };
}

function send({ bytes, etag }: Page, extension: string, request: HttpRequest, response: HttpResponse): void {
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
