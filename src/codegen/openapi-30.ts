/** Converts the OpenAPI 3.1 document to 3.0.3, for code generators without support for 3.1. */
import type { Document } from "./openapi-document.ts";

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Keywords of JSON Schema that 3.0 lacks. Without them, a schema accepts more. */
const unsupported: ReadonlySet<string> = new Set(["if", "then", "propertyNames", "contentEncoding"]);

export function toOpenApi30(document: Document): object {
  const {
    license: { name },
    ...info
  } = document.info;
  const { paths, components } = JSON.parse(JSON.stringify(document)) as { paths: Json; components: Json };
  return {
    ...document,
    openapi: "3.0.3",
    info: { ...info, license: { name } },
    paths: convert(paths),
    components: convert(components),
  };
}

/** Names of properties are not keywords, so a map of schemas is converted value by value. */
const maps: ReadonlySet<string> = new Set(["properties", "schemas"]);

function convert(value: Json): Json {
  if (Array.isArray(value)) return value.map(convert);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value as Readonly<Record<string, Json>>).flatMap(([key, child]) => {
    if (maps.has(key)) return [[key, convertMap(child)] as const];
    if (unsupported.has(key)) return [];
    if (key === "application/x-ndjson") return [[key, bytesOfLines(child)] as const];
    return key === "const" ? [["enum", [child]] as const] : [[key, convert(child)] as const];
  });
  const { $ref, allOf, ...rest } = Object.fromEntries(entries) as Record<string, Json>;
  const all = ((allOf ?? []) as readonly Json[]).filter((part) => Object.keys(part ?? {}).length > 0);
  // Other keywords beside a reference are ignored in 3.0.
  if ($ref !== undefined && Object.keys(rest).length === 0) return { $ref };
  const parts = $ref === undefined ? all : [{ $ref }, ...all];
  return parts.length === 0 ? rest : { ...rest, allOf: parts };
}

/** Some generators reject unknown content types, unless the content is bytes that the client reads itself. */
function bytesOfLines(content: Json): Json {
  const { schema } = content as { schema: { $ref: string } };
  const name = schema.$ref.replace(/^.*\//, "");
  return {
    schema: {
      type: "string",
      format: "binary",
      description: `Lines of JSON, each an object of \`${name}\`.`,
    },
  };
}

function convertMap(schemas: Json): Json {
  const entries = Object.entries(schemas as Readonly<Record<string, Json>>);
  return Object.fromEntries(entries.map(([name, schema]) => [name, convert(schema)]));
}
