/** What HTTP/1.1 has besides calls: an Express application of the pages. */
import type { RequestListener } from "node:http";
import express, { type NextFunction, type Request, type Response } from "express";
import type { Pages } from "./pages.ts";

export interface Http1AppOptions {
  readonly pages: Pages;
  /** Answers a path that nobody serves. */
  readonly notFound: (request: Request, response: Response) => void;
  /** Answers what failed outside of a call. */
  readonly failed: (request: Request, response: Response, error: unknown) => void;
}

export function createHttp1App({ pages, notFound, failed }: Http1AppOptions): RequestListener {
  const app = express();
  app.disable("x-powered-by").disable("etag").set("query parser", false);
  app.enable("case sensitive routing").enable("strict routing");
  for (const [path, page] of pages) app.get(path, page);
  app.use((request: Request, response: Response) => notFound(request, response));
  // Express tells an error handler by its four parameters.
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) =>
    failed(request, response, error),
  );
  return app;
}
