/**
 * The schemas of packages and sources are the only definition: they are valid schemas, and types are generated from
 * them.
 */
import { readFile } from "node:fs/promises";
import { Ajv } from "ajv";
import test from "ava";
import { manifestTypes, type ManifestSchema } from "../../src/codegen/manifest-types.ts";

const root = new URL("../../", import.meta.url);

const readSchema = async (name: string): Promise<unknown> =>
  JSON.parse(await readFile(new URL(`src/packages/manifest/${name}.schema.json`, root), "utf8"));

test("the types of a manifest match its schema", async (t) => {
  const types = manifestTypes((await readSchema("manifest")) as ManifestSchema);
  t.is(types, await readFile(new URL("gen/manifest-document.ts", root), "utf8"), "`npm run gen` writes it");
});

test("optional values, enums, lists, maps, and inline or named objects are distinguished", (t) => {
  const types = manifestTypes({
    required: ["name"],
    properties: {
      name: { $ref: "#/definitions/line" },
      mode: { enum: ["live", "stop"] },
      kind: { const: "object" },
      any: {},
      ports: { type: "array", items: { $ref: "#/definitions/port" } },
      env: { type: "object", additionalProperties: { $ref: "#/definitions/line" } },
      arg: { type: ["string", "array"], items: { type: "integer" } },
      inner: { type: "object", properties: { on: { type: "boolean" } } },
      console: { $ref: "#/definitions/console" },
    },
    definitions: {
      line: { type: "string" },
      port: { type: "object", properties: { number: { type: "integer" } } },
      console: { type: ["boolean", "object"], properties: { exec: { type: "number" } } },
    },
  });
  const [, manifest = "", port = "", console = ""] = types.split("export interface ");
  t.is(
    manifest.trim(),
    `ManifestDocument extends Extensible {
  name: string;
  mode?: "live" | "stop";
  kind?: "object";
  any?: unknown;
  ports?: Array<PortDocument>;
  env?: Record<string, string>;
  arg?: string | Array<number>;
  inner?: Extensible & { on?: boolean; };
  console?: boolean | ConsoleDocument;
}`,
  );
  t.is(port.trim(), "PortDocument extends Extensible {\n  number?: number;\n}");
  t.is(console.trim(), "ConsoleDocument extends Extensible {\n  exec?: number;\n}");
});

// The daemon uses them without validation, which would take as long at each start as compiling them.
for (const name of ["manifest", "index"]) {
  test(`${name}.schema.json is a JSON Schema`, async (t) => {
    const ajv = new Ajv({ strict: false });
    t.true(await ajv.validateSchema((await readSchema(name)) as object), ajv.errorsText());
  });
}
