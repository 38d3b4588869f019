/** An Express application for pages and Connect's own calls over HTTP/1.1. */
import type { RequestListener } from "node:http";
import express, { type NextFunction, type Request, type RequestHandler, type Response } from "express";
import type { Pages } from "./pages.ts";

export interface Http1AppOptions {
  readonly pages: Pages;
  /** Passes on requests for other paths. */
  readonly connect: RequestHandler;
  /** Responds to unknown paths. */
  readonly notFound: (request: Request, response: Response) => void;
  /** Responds to failures outside of a call. */
  readonly failed: (request: Request, response: Response, error: unknown) => void;
}

export function createHttp1App({ pages, connect, notFound, failed }: Http1AppOptions): RequestListener {
  const app = express();
  app.disable("x-powered-by").disable("etag").set("query parser", false);
  app.enable("case sensitive routing").enable("strict routing");
  for (const [path, page] of pages) app.get(path, page);
  app.use(connect);
  app.use((request: Request, response: Response) => notFound(request, response));
  // Express recognizes an error handler by its four parameters.
  app.use((error: unknown, request: Request, response: Response, _next: NextFunction) =>
    failed(request, response, error),
  );
  return app;
}
