/** Types of a manifest as authors write it. Supports the subset of JSON Schema that `manifest.schema.json` uses. */
interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly const?: string;
  readonly enum?: readonly string[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | false;
  readonly items?: Schema;
}

export interface ManifestSchema extends Schema {
  readonly definitions: Readonly<Record<string, Schema>>;
}

const head = `// Generated from src/packages/manifest/manifest.schema.json by src/codegen/manifest-types.ts; \`npm run gen\` writes it.

interface Extensible {
  [key: \`x-\${string}\`]: unknown;
}
`;

/** An interface for the manifest, and one for each definition with `properties`, such as `PortDocument`. */
export function manifestTypes(schema: ManifestSchema): string {
  const interfaces = Object.entries({ manifest: schema, ...schema.definitions })
    .filter(([, { properties }]) => properties !== undefined)
    .map(([name, one]) => {
      const fields = fieldsOf(one, schema).map((field) => `  ${field}\n`);
      return `\nexport interface ${nameOf(name)} extends Extensible {\n${fields.join("")}}\n`;
    });
  return head + interfaces.join("");
}

function nameOf(definition: string): string {
  return `${definition.charAt(0).toUpperCase()}${definition.slice(1)}Document`;
}

function fieldsOf({ properties = {}, required = [] }: Schema, whole: ManifestSchema): string[] {
  return Object.entries(properties).map(
    ([name, one]) => `${name}${required.includes(name) ? "" : "?"}: ${typeOf(one, whole)};`,
  );
}

function typeOf(schema: Schema, whole: ManifestSchema): string {
  const name = schema.$ref?.replace("#/definitions/", "");
  const target = name === undefined ? schema : (whole.definitions[name] ?? {});
  const values = target.enum ?? (target.const === undefined ? [] : [target.const]);
  if (values.length > 0) return values.map((value) => JSON.stringify(value)).join(" | ");
  const types = [target.type ?? "unknown"].flat().map((type) => {
    if (type === "array") return `Array<${typeOf(target.items ?? {}, whole)}>`;
    if (type === "integer") return "number";
    if (type !== "object") return type;
    if (target.properties === undefined)
      return `Record<string, ${typeOf(target.additionalProperties || {}, whole)}>`;
    return name === undefined ? `Extensible & { ${fieldsOf(target, whole).join(" ")} }` : nameOf(name);
  });
  return types.join(" | ");
}
