/** What HTTP/1.1 has besides REST and plain unary calls: an Express application of the pages and of Connect's own calls. */
import type { RequestListener } from "node:http";
import express, { type NextFunction, type Request, type RequestHandler, type Response } from "express";
import type { Pages } from "./pages.ts";

export interface Http1AppOptions {
  readonly pages: Pages;
  /** Passes on what is no procedure. */
  readonly connect: RequestHandler;
  /** Answers a path that nobody serves. */
  readonly notFound: (request: Request, response: Response) => void;
  /** Answers what failed outside of a call. */
  readonly failed: (request: Request, response: Response, error: unknown) => void;
}

export function createHttp1App({ pages, connect, notFound, failed }: Http1AppOptions): RequestListener {
  const app = express();
  app.disable("x-powered-by").disable("etag").set("query parser", false);
  app.enable("case sensitive routing").enable("strict routing");
  for (const [path, page] of pages) app.get(path, page);
  app.use(connect);
  app.use((request: Request, response: Response) => notFound(request, response));
  // Express tells an error handler by its four parameters.
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) =>
    failed(request, response, error),
  );
  return app;
}
