/** `manifest.schema.json` is the one truth: the TypeScript types of `manifest-document.ts` must say the same. */
import { readFile, rm, writeFile } from "node:fs/promises";
import { Ajv } from "ajv";
import test from "ava";
import ts from "typescript";

interface Schema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  required?: string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | false;
  items?: Schema;
}

/** The TypeScript type of a schema, for the subset that ours uses. */
function typeOf(schema: Schema): string {
  if (schema.$ref !== undefined) return `D_${schema.$ref.replace("#/definitions/", "")}`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
  const types = [schema.type ?? "unknown"].flat().map((type) => {
    if (type === "array") return `(${typeOf(schema.items ?? {})})[]`;
    if (type === "object") return objectType(schema);
    return type === "integer" ? "number" : type;
  });
  return types.join(" | ");
}

function objectType({ properties, additionalProperties, required = [] }: Schema): string {
  if (properties === undefined) return `Record<string, ${typeOf(additionalProperties || {})}>`;
  const fields = Object.entries(properties).map(
    ([name, child]) => `"${name}"${required.includes(name) ? "" : "?"}: ${typeOf(child)};`,
  );
  return `{ [key: \`x-\${string}\`]: unknown; ${fields.join(" ")} }`;
}

const root = new URL("../../", import.meta.url);

function problemsOf(file: string): string[] {
  const config = ts.readConfigFile(new URL("tsconfig.json", root).pathname, (path) => ts.sys.readFile(path));
  const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, root.pathname);
  const program = ts.createProgram([file], options);
  return ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"));
}

test("schema and types agree, in both directions", async (t) => {
  const schemaUrl = new URL("src/packages/manifest.schema.json", root);
  const schema = JSON.parse(await readFile(schemaUrl, "utf8")) as Schema & {
    definitions: Record<string, Schema>;
  };
  const file = new URL("test/packages/.manifest-types-check.ts", root).pathname;
  const definitions = Object.entries(schema.definitions).map(
    ([name, child]) => `type D_${name} = ${typeOf(child)};`,
  );
  await writeFile(
    file,
    [
      `import type { ManifestDocument } from "../../src/packages/manifest-document.ts";`,
      ...definitions,
      `type FromSchema = ${typeOf(schema)};`,
      `type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;`,
      `type Deep<T> = T extends readonly (infer U)[] ? Deep<U>[] : T extends object ? { [K in keyof T]: Deep<T[K]> } : T;`,
      `export const same: Equal<Deep<FromSchema>, Deep<ManifestDocument>> = true;`,
      `export const there = (value: FromSchema): ManifestDocument => value;`,
      `export const back = (value: ManifestDocument): FromSchema => value;`,
      "",
    ].join("\n"),
  );
  try {
    t.deepEqual(problemsOf(file), []);
  } finally {
    await rm(file);
  }
});

// The daemon takes them for what they are: to look at that with each start would take as long as to compile them.
for (const name of ["manifest", "index"]) {
  test(`${name}.schema.json is a JSON Schema`, async (t) => {
    const text = await readFile(new URL(`src/packages/${name}.schema.json`, root), "utf8");
    const ajv = new Ajv({ strict: false });
    t.true(await ajv.validateSchema(JSON.parse(text) as object), ajv.errorsText());
  });
}
