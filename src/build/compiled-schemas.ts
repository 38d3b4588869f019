/** What ajv makes of svc's own schemas, as modules in the place of `src/packages/own-schemas.ts`, which compiles them where it runs. */
import { Ajv } from "ajv";
import standalone from "ajv/dist/standalone/index.js";
import type { Plugin } from "esbuild";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { schemaOptions } from "../packages/schema-problems.ts";

/** By what the module has for it. */
const schemas = { manifestValidator: "manifest.schema.json", indexValidator: "index.schema.json" };

/** Those who read a manifest do not load what reads an index. */
export function compiledSchemas(root: string): Plugin {
  const namespace = "compiled-schema";
  return {
    name: namespace,
    setup: (build) => {
      build.onLoad({ filter: /\/src\/packages\/own-schemas\.ts$/ }, () => {
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
        contents: compiledSchema(await readFile(join(root, "src/packages", path), "utf8")),
        resolveDir: root,
      }));
    },
  };
}

/** @returns a CommonJS module which is the function */
export function compiledSchema(schema: string): string {
  const ajv = new Ajv({ ...schemaOptions, code: { source: true } });
  const { default: codeOf } = standalone;
  return codeOf(ajv, ajv.compile(JSON.parse(schema) as object));
}
