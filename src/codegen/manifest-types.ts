/** The types of a manifest as its author writes it, for the subset of JSON Schema that `manifest.schema.json` uses. */
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

const head = `// Generated from src/packages/manifest.schema.json by src/codegen/manifest-types.ts; \`npm run gen\` writes it.

interface Extensible {
  [key: \`x-\${string}\`]: unknown;
}
`;

/** An interface for the whole, and one for each definition that is an object with keys of its own, such as `PortDocument`. */
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
  const said = name === undefined ? schema : (whole.definitions[name] ?? {});
  const words = said.enum ?? (said.const === undefined ? [] : [said.const]);
  if (words.length > 0) return words.map((word) => JSON.stringify(word)).join(" | ");
  const types = [said.type ?? "unknown"].flat().map((type) => {
    if (type === "array") return `Array<${typeOf(said.items ?? {}, whole)}>`;
    if (type === "integer") return "number";
    if (type !== "object") return type;
    if (said.properties === undefined)
      return `Record<string, ${typeOf(said.additionalProperties || {}, whole)}>`;
    return name === undefined ? `Extensible & { ${fieldsOf(said, whole).join(" ")} }` : nameOf(name);
  });
  return types.join(" | ");
}
