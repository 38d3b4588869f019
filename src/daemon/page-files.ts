/** The files of the static pages: the page, the guide, `openapi.json`, and the API page that renders it with Swagger UI. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { guidePathOf } from "../server/http/guide-page.ts";
import type { PageFiles } from "../server/http/pages.ts";

/** Paths when svc runs from its sources: Swagger UI is in its npm package. The page is absent, because it must be built first. */
export function sourcePages(): PageFiles {
  const root = join(import.meta.dirname, "../..");
  return pagesIn({
    openapi: join(root, "openapi"),
    docs: join(root, "src/server/http/pages"),
    guide: join(root, "docs"),
    swagger: join(root, "node_modules/swagger-ui-dist"),
  });
}

/** Paths when svc runs from a bundle: beside the bundle's script. */
export function bundledPages(): PageFiles {
  const docs = join(import.meta.dirname, "docs");
  return {
    ...webPages(join(import.meta.dirname, "web")),
    ...pagesIn({
      openapi: import.meta.dirname,
      docs,
      guide: join(import.meta.dirname, "guide"),
      swagger: docs,
    }),
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

type PageDirs = Record<"openapi" | "docs" | "guide" | "swagger", string>;

function pagesIn({ openapi, docs, guide, swagger }: PageDirs): PageFiles {
  const pages = readdirSync(guide, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".md"),
  );
  return {
    ...Object.fromEntries(pages.map((name) => [guidePathOf(name), join(guide, name)])),
    "/docs/guide.css": join(docs, "guide.css"),
    "/v1/openapi.json": join(openapi, "openapi.json"),
    "/docs": join(docs, "docs.html"),
    "/docs/docs.js": join(docs, "docs.js"),
    "/docs/swagger-ui.css": join(swagger, "swagger-ui.css"),
    "/docs/swagger-ui-bundle.js": join(swagger, "swagger-ui-bundle.js"),
  };
}
