/**
 * Lists the app stores of CasaOS and Runtipi: git repositories without an index, with a directory and a description
 * file per app. Their apps become packages at install, when svc generates the manifest.
 */
import { posix } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { isObject, type JsonObject, type JsonValue } from "../../lib/json.ts";
import type { YamlReading } from "../manifest/yaml-thread.ts";
import type { YamlBounds } from "../manifest/yaml-document.ts";

/** Parses untrusted YAML. */
export type ReadYaml = (text: string, bounds: YamlBounds) => Promise<YamlReading>;

interface Described {
  readonly name?: string;
  readonly summary?: string;
  readonly homepage?: string;
  readonly tags?: readonly string[];
}

/** @returns undefined for a description that cannot be read, or of an app that is not offered */
type Describe = (text: string, readYaml: ReadYaml) => Promise<Described | undefined>;

const layouts: readonly { readonly form: RegExp; readonly describe: Describe }[] = [
  { form: /^Apps\/([^/\x00-\x1f\x7f]+)\/docker-compose\.ya?ml$/, describe: describeCasaOs },
  { form: /^apps\/([^/\x00-\x1f\x7f]+)\/config\.json$/, describe: describeRuntipi },
];

/** Limits of app descriptions: one has a hundred KiB if it is translated into twenty languages. */
export const storeBounds = { maxFiles: 1_000, maxFileBytes: 128 * 1024 } as const;
const yamlBounds = { maxBytes: storeBounds.maxFileBytes, maxTokens: 8_000, maxDepth: 32, maxValues: 8_000 };
const maxLine = 256;
const maxTags = 8;

/** Whether a path in a repository is an app's description in a store. */
export function describesApp(path: string): boolean {
  return layouts.some(({ form }) => form.test(path));
}

/**
 * Creates an index of the store, without apps that cannot be read.
 * @param files descriptions by path, see {@link describesApp}
 * @returns the text of an index; undefined without an app
 */
export async function storeIndex(
  files: ReadonlyMap<string, string>,
  readYaml: ReadYaml,
): Promise<string | undefined> {
  const packages: Record<string, Described & { directory: string; runtime: "compose" }> = {};
  for (const [path, text] of files) {
    for (const { form, describe } of layouts) {
      const id = packageId(form.exec(path)?.[1] ?? "");
      if (id === "" || Object.hasOwn(packages, id)) continue;
      // JSON is parsed on this thread, and a store may contain megabytes.
      await nextTurn();
      const described = await describe(text, readYaml);
      if (described !== undefined)
        packages[id] = { directory: posix.dirname(path), runtime: "compose", ...described };
    }
  }
  return Object.keys(packages).length === 0 ? undefined : JSON.stringify({ packages });
}

/** Converts `AdGuard Home` to `adguard-home`; empty if no valid ID results. */
function packageId(directory: string): string {
  const id = directory.toLowerCase().replaceAll(/[^a-z0-9._-]+/g, "-");
  return id
    .replace(/^[^a-z0-9]+/, "")
    .slice(0, 63)
    .replace(/[^a-z0-9]+$/, "");
}

async function describeCasaOs(text: string, readYaml: ReadYaml): Promise<Described | undefined> {
  const reading = await readYaml(text, yamlBounds);
  const casa = "value" in reading ? objectOf(objectOf(reading.value)["x-casaos"]) : {};
  if (Object.keys(casa).length === 0) return undefined;
  const inEnglish = (value: JsonValue | undefined): JsonValue | undefined =>
    typeof value === "string" ? value : (objectOf(value)["en_us"] ?? objectOf(value)["en_US"]);
  return described({
    name: inEnglish(casa["title"]),
    summary: inEnglish(casa["tagline"]) ?? inEnglish(casa["description"]),
    homepage: casa["project_url"],
    tags: [casa["category"]],
  });
}

function describeRuntipi(text: string): Promise<Described | undefined> {
  let config: JsonObject = {};
  try {
    config = objectOf(JSON.parse(text) as JsonValue);
  } catch {
    // Invalid descriptions are skipped.
  }
  if (typeof config["id"] !== "string" || config["available"] === false || config["deprecated"] === true)
    return Promise.resolve(undefined);
  const { categories } = config;
  return Promise.resolve(
    described({
      name: config["name"],
      summary: config["short_desc"],
      homepage: config["website"] ?? config["source"],
      tags: Array.isArray(categories) ? categories : [],
    }),
  );
}

function described(fields: {
  name: JsonValue | undefined;
  summary: JsonValue | undefined;
  homepage: JsonValue | undefined;
  tags: readonly (JsonValue | undefined)[];
}): Described {
  const name = lineOf(fields.name);
  const summary = lineOf(fields.summary);
  const homepage = lineOf(fields.homepage);
  const tags = fields.tags.map(lineOf).filter((tag) => tag !== "");
  return {
    ...(name !== "" && { name }),
    ...(summary !== "" && { summary }),
    ...(homepage !== "" && { homepage }),
    tags: tags.slice(0, maxTags),
  };
}

/** The first line, limited as in an index. */
function lineOf(value: JsonValue | undefined): string {
  if (typeof value !== "string") return "";
  const [line = ""] = value.trim().split(/[\r\n]/);
  const text = line.replaceAll(/[\x00-\x1f\x7f]/g, " ").slice(0, maxLine);
  // The limit may have cut an emoji.
  return text.toWellFormed().trim();
}

function objectOf(value: JsonValue | undefined): JsonObject {
  return isObject(value) ? value : {};
}
