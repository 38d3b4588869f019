/** The files of the static pages: `openapi.json`, and the API page that renders it with Swagger UI. */
import { join } from "node:path";
import type { PageFiles } from "../transport/pages.ts";

/** Where they lie when svc runs from its sources: in their packages. */
export function sourcePages(): PageFiles {
  const root = join(import.meta.dirname, "../..");
  return pagesIn({
    openapi: join(root, "openapi"),
    docs: join(root, "src/transport/pages"),
    swagger: join(root, "node_modules/swagger-ui-dist"),
  });
}

/** Where they lie beside a bundle. */
export function bundledPages(): PageFiles {
  const docs = join(import.meta.dirname, "docs");
  return pagesIn({ openapi: import.meta.dirname, docs, swagger: docs });
}

function pagesIn({ openapi, docs, swagger }: Record<"openapi" | "docs" | "swagger", string>): PageFiles {
  return {
    "/v1/openapi.json": join(openapi, "openapi.json"),
    "/docs": join(docs, "docs.html"),
    "/docs/docs.js": join(docs, "docs.js"),
    "/docs/swagger-ui.css": join(swagger, "swagger-ui.css"),
    "/docs/swagger-ui-bundle.js": join(swagger, "swagger-ui-bundle.js"),
  };
}
