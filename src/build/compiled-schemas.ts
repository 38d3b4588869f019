/** Compiles svc's own schemas with ajv at build time, into modules that replace `src/packages/manifest/own-schemas.ts`, which compiles them at run time. */
import { Ajv } from "ajv";
import standalone from "ajv/dist/standalone/index.js";
import type { Plugin } from "esbuild";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { schemaOptions } from "../packages/manifest/schema-problems.ts";

/** Schema files by export name. */
const schemas = { manifestValidator: "manifest.schema.json", indexValidator: "index.schema.json" };

/** Separate modules, so that reading a manifest does not load the index's schema. */
export function compiledSchemas(root: string): Plugin {
  const namespace = "compiled-schema";
  return {
    name: namespace,
    setup: (build) => {
      build.onLoad({ filter: /\/src\/packages\/manifest\/own-schemas\.ts$/ }, () => {
        const functions = Object.entries(schemas).map(
          ([name, file]) =>
            `export const ${name} = async () => (await import("${namespace}:${file}")).default;\n`,
        );
        return { contents: functions.join("") };
      });
      build.onResolve({ filter: new RegExp(`^${namespace}:`) }, ({ path }) => ({
        path: path.slice(namespace.length + 1),
        namespace,
      }));
      build.onLoad({ filter: /.*/, namespace }, async ({ path }) => ({
        contents: compiledSchema(await readFile(join(root, "src/packages/manifest", path), "utf8")),
        resolveDir: root,
      }));
    },
  };
}

/** @returns a CommonJS module that exports the function */
export function compiledSchema(schema: string): string {
  const ajv = new Ajv({ ...schemaOptions, code: { source: true } });
  const { default: codeOf } = standalone;
  return codeOf(ajv, ajv.compile(JSON.parse(schema) as object));
}
