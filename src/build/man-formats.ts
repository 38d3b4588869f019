/** Generates `man svc.yaml` and `man svc.toml` from the manifest's schema and the commented configuration. */
import { plainSentence, text } from "./man-page.ts";

export interface Edition {
  readonly version: string;
  /** `2026-03-29` */
  readonly date: string;
}

/** The parts of JSON Schema that the manifest's schema uses. */
export interface Schema {
  readonly $ref?: string;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly definitions?: Readonly<Record<string, Schema>>;
  readonly "x-expected"?: string;
}

/** A key of the manifest. */
export interface ManifestKey {
  /** `ports[].name` */
  readonly name: string;
  /** The key's description, in sentences. */
  readonly descriptions: readonly string[];
}

/** All keys, the required ones of each object first, and nested keys after their parent. */
export function manifestKeys(schema: Schema): ManifestKey[] {
  const resolve = ({ $ref, ...own }: Schema): Schema => ({
    ...($ref === undefined ? {} : schema.definitions?.[$ref.replace("#/definitions/", "")]),
    ...own,
  });
  const keysOf = (of: Schema, path: string, within: ReadonlySet<string>): ManifestKey[] =>
    requiredFirst(of).flatMap(([key, written]) => {
      const part = resolve(written);
      const item = part.items && resolve(part.items);
      const name = path === "" ? key : `${path}.${key}`;
      const reference = written.$ref ?? part.items?.$ref ?? "";
      const isRequired = of.required?.includes(key) ?? false;
      const descriptions = [
        part.description ?? "",
        expectedOf(part, item),
        ...(isRequired ? ["Required."] : []),
      ];
      // A setting may have parts that are settings, too.
      const inner = within.has(reference)
        ? []
        : keysOf(item ?? part, item ? `${name}[]` : name, new Set([...within, reference]));
      return [
        { name, descriptions: descriptions.filter((words) => words !== "").map(plainSentence) },
        ...inner,
      ];
    });
  return keysOf(schema, "", new Set());
}

function requiredFirst({ properties = {}, required = [] }: Schema): [key: string, schema: Schema][] {
  const rank = ([key]: [string, Schema]): number => (required.includes(key) ? 0 : 1);
  return Object.entries(properties).toSorted((one, other) => rank(one) - rank(other));
}

/** @param example a whole manifest */
export function manifestPage(schema: Schema, example: string, edition: Edition): string {
  return [
    ...head("SVC.YAML", edition, "svc.yaml", "the manifest of a package"),
    text(schema.description ?? ""),
    ".SH EXAMPLE",
    ".nf",
    ...example.trimEnd().split("\n").map(text),
    ".fi",
    ".SH KEYS",
    ...manifestKeys(schema).flatMap(({ name, descriptions }) => [
      ".TP",
      `.B ${text(name)}`,
      ...descriptions.map(text),
    ]),
    ".SH SEE ALSO",
    "svc package init, svc package check and svc package schema in",
    ".BR svc (1)",
    "",
  ].join("\n");
}

function expectedOf(
  { "x-expected": expected, enum: values, type }: Schema,
  item: Schema | undefined,
): string {
  if (values !== undefined) return `One of ${values.join(", ")}.`;
  if (item?.enum !== undefined) return `A list of ${item.enum.join(", ")}.`;
  if (expected !== undefined) return `${expected}.`;
  const words: Readonly<Record<string, string>> = {
    boolean: "True or false.",
    integer: "A whole number.",
    number: "A number.",
  };
  return typeof type === "string" ? (words[type] ?? "") : "";
}

/** @param template the configuration with every key in comments */
export function configurationPage(template: string, edition: Edition): string {
  return [
    ...head("SVC.TOML", edition, "svc.toml", "the configuration of svc"),
    "Every key with its default, or a marked example. svc daemon \\-\\-check reports problems of the file, and svc daemon reload applies it.",
    ".SH KEYS",
    ".nf",
    ...template.trimEnd().split("\n").map(text),
    ".fi",
    "",
  ].join("\n");
}

function head(title: string, { version, date }: Edition, name: string, what: string): string[] {
  return [
    `.TH ${title} 5 "${date}" "svc ${text(version)}" "File Formats"`,
    ".SH NAME",
    `${name} \\- ${what}`,
    ".SH DESCRIPTION",
  ];
}
