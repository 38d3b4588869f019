/** Output as YAML, and by a template. */
import { stringify } from "yaml";
import { escapeCell, escapeLines } from "./escape.ts";
import { formatJson } from "./json.ts";

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

/** The entries of a response with one list, such as `{"apps": […], "next_page_token": ""}`. */
function entriesOf(value: unknown): readonly unknown[] {
  if (typeof value !== "object" || value === null) return [value];
  const fields = Object.entries(value as Readonly<Record<string, unknown>>);
  const lists = fields.filter(([, field]) => Array.isArray(field));
  const [only] = lists;
  // A single app or job also has lists.
  const isList = !("id" in value) && !("name" in value);
  return isList && lists.length === 1 ? (only?.[1] as readonly unknown[]) : [value];
}

function formatEntry(entry: unknown, template: string): string {
  return template
    .replaceAll("\\t", "\t")
    .replaceAll("\\n", "\n")
    .replaceAll(
      /\{\{\s*(json\s+)?\.([A-Za-z0-9_.]*)\s*\}\}/g,
      (_whole, json: string | undefined, path: string) => {
        const names = path.split(".").filter((name) => name !== "");
        const field = names.reduce<unknown>(
          (at, name) => (at as Readonly<Record<string, unknown>> | null | undefined)?.[name],
          entry,
        );
        if (field === undefined || field === null) return "";
        const isPlain = json === undefined && typeof field === "string";
        return isPlain ? escapeCell(field) : formatJson(field, 0).trimEnd();
      },
    );
}
