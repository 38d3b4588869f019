/** Output as YAML, and by a template. */
import { stringify } from "yaml";
import { escapeCell, escapeLines, formatJson } from "./escape.ts";
import { UsageError } from "./failure.ts";

const placeholder = /\{\{\s*(json\s+)?\.([A-Za-z0-9_.]*)\s*\}\}/g;

/** One YAML document. It starts with `---`, so that several form a stream. */
export function formatYaml(value: unknown): string {
  return escapeLines(`---\n${stringify(value, { lineWidth: 0 })}`);
}

/**
 * One line per entry of a list; for other output, one line. `{{.id}}` is the value of a field, `{{.origin.url}}` of a
 * field in a field, `{{json .}}` the whole entry; `\\t` and `\\n` are a tab and a line feed.
 */
export function formatEntries(value: unknown, template: string): string {
  return entriesOf(value)
    .map((entry) => `${formatEntry(entry, template)}\n`)
    .join("");
}

/** The entries of a response with one list, such as `{"apps": […], "errors": [], "next_page_token": ""}`. */
function entriesOf(value: unknown): readonly unknown[] {
  if (typeof value !== "object" || value === null) return [value];
  const fields = Object.entries(value as Readonly<Record<string, unknown>>);
  const lists = fields.filter(([name, field]) => name !== "errors" && Array.isArray(field));
  const [only] = lists;
  // A single app or job also has lists.
  const isList = !("id" in value) && !("name" in value);
  return isList && lists.length === 1 ? (only?.[1] as readonly unknown[]) : [value];
}

/**
 * Checks the names of fields in a template. A field that no entry has may still be an optional field of the contract.
 * @throws UsageError with the fields of the entries
 */
export async function requireKnownFields(value: unknown, template: string): Promise<void> {
  const entries = entriesOf(value).filter((entry) => typeof entry === "object" && entry !== null);
  const present = new Set(entries.flatMap((entry) => Object.keys(entry)));
  if (present.size === 0) return;
  const names = [...template.matchAll(placeholder)].map(([, , path = ""]) => path.split(".")[0] ?? "");
  const absent = names.filter((name) => name !== "" && !present.has(name));
  if (absent.length === 0) return;
  const fields = await fieldsOfMessagesWith([...present]);
  const unknown = absent.find((name) => !fields.has(name));
  if (fields.size === 0 || unknown === undefined) return;
  const listed = [...present].toSorted().join(", ");
  throw new UsageError(`--format: unknown field "${unknown}"; fields: ${listed}`);
}

/** The fields of all messages of the contract that have the given fields. */
async function fieldsOfMessagesWith(names: readonly string[]): Promise<ReadonlySet<string>> {
  const { services } = await import("../../../gen/svc/v1/services.ts");
  const messages = services
    .flatMap(({ file }) => file.messages)
    .map((message) => new Set(message.fields.map((field) => field.name)));
  return new Set(
    messages.filter((fields) => names.every((name) => fields.has(name))).flatMap((fields) => [...fields]),
  );
}

function formatEntry(entry: unknown, template: string): string {
  return template
    .replaceAll("\\t", "\t")
    .replaceAll("\\n", "\n")
    .replaceAll(placeholder, (_whole, json: string | undefined, path: string) => {
      const names = path.split(".").filter((name) => name !== "");
      const field = names.reduce<unknown>(
        (at, name) => (at as Readonly<Record<string, unknown>> | null | undefined)?.[name],
        entry,
      );
      if (field === undefined || field === null) return "";
      const isPlain = json === undefined && typeof field === "string";
      return isPlain ? escapeCell(field) : formatJson(field, 0).trimEnd();
    });
}
