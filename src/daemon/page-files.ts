/** The files of the static pages: the page, `openapi.json`, and the API page that renders it with Swagger UI. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { PageFiles } from "../server/http/pages.ts";

/** Paths when svc runs from its sources: in npm packages. The page must be built first, so it is absent. */
export function sourcePages(): PageFiles {
  const root = join(import.meta.dirname, "../..");
  return pagesIn({
    openapi: join(root, "openapi"),
    docs: join(root, "src/server/http/pages"),
    swagger: join(root, "node_modules/swagger-ui-dist"),
  });
}

/** Paths in a bundle. */
export function bundledPages(): PageFiles {
  const docs = join(import.meta.dirname, "docs");
  return {
    ...webPages(join(import.meta.dirname, "web")),
    ...pagesIn({ openapi: import.meta.dirname, docs, swagger: docs }),
  };
}

/** The page as built by `build/web.ts`. */
function webPages(dir: string): PageFiles {
  const names = readdirSync(dir).filter((name) => /\.(js|css)$/.test(name));
  return {
    "/": join(dir, "index.html"),
    ...Object.fromEntries(names.map((name) => [`/web/${name}`, join(dir, name)])),
  };
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
