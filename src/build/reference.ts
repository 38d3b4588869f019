/**
 * `node src/build/reference.ts OPENAPI DESCRIPTORS DIR`: generates the reference in Markdown from the program's own
 * sources, so that it is always complete: the commands, the manifest's schema, the commented configuration and the
 * API.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { exitCodeHelp, exitCodeNote } from "../cli/output/exit-codes.ts";
import { readContractOptions } from "../codegen/contract-options.ts";
import { configTemplate } from "../daemon/config-template.ts";
import { commandManual, type CommandEntry, type Entry, type Manual, type Note } from "./manual.ts";
import { manifestKeys, type ManifestKey, type Schema } from "./man-formats.ts";
import { plainSentence } from "./man-page.ts";

/** The parts of `openapi.json` in the reference. */
interface ApiDocument {
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly "x-svc-access": string;
}

const [openApiFile = "", descriptors = "", dir = ""] = process.argv.slice(2);
/** End of each page. */
const generated = "*`npm run gen` writes this page.*";
const root = join(import.meta.dirname, "../..");
const readJson = async (file: string): Promise<unknown> =>
  JSON.parse(await readFile(file, "utf8")) as unknown;
const pages = {
  "commands.md": commands(await commandManual()),
  "configuration.md": configuration(),
  "manifest.md": manifest(
    (await readJson(join(root, "src/packages/manifest/manifest.schema.json"))) as Schema,
    await readFile(join(root, "examples/hello/svc.yaml"), "utf8"),
  ),
  "methods.md": [
    ...api((await readJson(openApiFile)) as ApiDocument),
    ...reasons(await readFile(descriptors)),
  ],
};
await mkdir(dir, { recursive: true });
for (const [name, lines] of Object.entries(pages)) {
  await writeFile(join(dir, name), `${[...lines, "", generated].join("\n")}\n`);
}

function commands(manual: Manual): string[] {
  return [
    "# The commands",
    "",
    manual.description,
    "",
    "## Options of every command",
    "",
    "They are valid before or after its name.",
    ...entryList(manual.options),
    "",
    "## Exit codes",
    "",
    ...exitCodeHelp.split("\n").flatMap((line) => {
      const [, code, meaning = ""] = /^ +(\d+) +(.+)$/.exec(line) ?? [];
      return code === undefined ? [] : [`- ${code}: ${meaning}`];
    }),
    "",
    exitCodeNote,
    ...manual.commands.flatMap(command),
  ];
}

function command({ usage, aliases, description, args, options, notes, examples }: CommandEntry): string[] {
  const also = aliases.map((alias) => `\`${alias}\``).join(", ");
  return [
    "",
    `## \`${usage}\``,
    "",
    `${plainSentence(description)}${also === "" ? "" : ` Also: ${also}.`}`,
    ...entryList([...args, ...options]),
    ...notes.flatMap(note),
    ...block("sh", examples),
  ];
}

function entryList(entries: readonly Entry[]): string[] {
  if (entries.length === 0) return [];
  return ["", ...entries.map(({ term, description }) => `- \`${term}\`: ${description}`)];
}

function note({ text, isFixed }: Note): string[] {
  return isFixed ? block("text", text.split("\n")) : ["", text];
}

function block(kind: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : ["", `\`\`\`${kind}`, ...lines, "```"];
}

function configuration(): string[] {
  const template = configTemplate("/etc/svc/svc.toml", { uid: 0, home: "/root", env: {} });
  return [
    "# The configuration",
    "",
    "`/etc/svc/svc.toml` of the system-wide daemon, as `svc setup` writes it: every key with its default, or an example. `svc daemon --check` reports",
    "problems of the file, and `svc daemon reload` applies it. [How to install](../installing.md) lists the paths.",
    "",
    "```toml",
    template.trimEnd(),
    "```",
  ];
}

/** An example, then the keys: each top-level key with keys of its own has a section. */
function manifest(schema: Schema, example: string): string[] {
  const keys = manifestKeys(schema);
  const topOf = ({ name }: ManifestKey): string => /^\w+/.exec(name)?.[0] ?? name;
  const isSection = (key: ManifestKey): boolean =>
    keys.some((each) => each !== key && topOf(each) === key.name);
  const isTop = (key: ManifestKey): boolean => topOf(key) === key.name;
  const isRequired = ({ name }: ManifestKey): boolean => schema.required?.includes(name) ?? false;
  const flat = keys.filter((key) => isTop(key) && !isSection(key));
  return [
    "# The manifest of a package",
    "",
    `${schema.description ?? ""} [Packages](../packages.md) shows how to write one.`,
    "",
    "## Example",
    ...block("yaml", example.trimEnd().split("\n")),
    "",
    "## Required keys",
    "",
    "These, and one of [process](#process), [docker](#docker), [compose](#compose) and [service](#service):",
    "",
    ...flat.filter(isRequired).map(keyLine),
    "",
    "## Optional keys",
    "",
    ...flat.filter((key) => !isRequired(key)).map(keyLine),
    ...keys
      .filter((key) => isTop(key) && isSection(key))
      .flatMap((section) => [
        "",
        `## \`${section.name}\``,
        ...section.descriptions.flatMap((sentence) => ["", sentence]),
        "",
        ...keys.filter((key) => key !== section && topOf(key) === section.name).map(keyLine),
      ]),
  ];
}

function keyLine({ name, descriptions }: ManifestKey): string {
  return `- \`${name}\`${descriptions.length === 0 ? "" : `: ${descriptions.join(" ")}`}`;
}

function api({ tags, paths }: ApiDocument): string[] {
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  return [
    "# The API",
    "",
    "Every method over REST, by service. Connect and gRPC call it `svc.v1.SERVICE/METHOD`. Fields and responses are in",
    "[`openapi.json`](../../openapi/openapi.json), which the daemon serves at `/docs`. [The API](../rest-api.md) shows how to call it.",
    "",
    "Any identified caller may call `USER` methods for their own objects; `ROOT` requires root, or a bearer token that is not a regular",
    "user's session; `PRIMARY` the primary token, or root on the socket; `PEER` the socket; `CODE` a session's code.",
    ...tags.flatMap(({ name, description }) => [
      "",
      `## ${name}`,
      "",
      description,
      "",
      "| method | REST | who | |",
      "|---|---|---|---|",
      ...operations
        .filter(({ operation }) => operation.tags.includes(name))
        .map(({ path, method, operation }) =>
          [
            "",
            ` ${operation.operationId[0]?.toUpperCase() ?? ""}${operation.operationId.slice(1)} `,
            ` \`${method.toUpperCase()} ${path}\` `,
            ` ${operation["x-svc-access"]} `,
            ` ${cell(operation.summary)} `,
            "",
          ].join("|"),
        ),
    ]),
  ];
}

/** The machine-readable reasons of errors. */
function reasons(descriptors: Uint8Array): string[] {
  const files = createFileRegistry(fromBinary(FileDescriptorSetSchema, descriptors));
  const options = readContractOptions(files.files);
  const rules =
    files.getMessage("svc.v1.ErrorDetail")?.fields.flatMap((field) => options.reasons(field)) ?? [];
  return [
    "",
    "## Reasons",
    "",
    "Machine-readable reasons of errors, with their codes in Connect and gRPC.",
    "",
    "| reason | code | |",
    "|---|---|---|",
    ...rules.map(({ word, code, meaning }) => `| \`${word}\` | \`${code}\` | ${cell(meaning)} |`),
  ];
}

/** Formats a table cell on one line. */
function cell(words: string): string {
  return words.replaceAll("\n", " ").replaceAll("|", "\\|");
}
