/**
 * Checks the files that a compose file refers to before compose reads them: nothing from the network, nothing outside
 * the checkout. The daemon then gives compose copies of exactly these ({@link ProjectReads}). Where compose reads in
 * place, only this check protects files outside, so a file that svc and compose may read differently is rejected.
 */
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { posix } from "node:path";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { isObject, type JsonObject, type JsonValue } from "../../lib/json.ts";
import { isInside } from "../../lib/paths.ts";
import type { YamlBounds } from "../../packages/manifest/yaml-document.ts";
import type { YamlReading } from "../../packages/manifest/yaml-thread.ts";
import { entryType } from "../entry-type.ts";
import { listOf, mergedRecord } from "./compose-values.ts";

/** The most bytes of a compose file or environment file. */
export const maxSourceBytes = 512 * 1024;
const bounds = { maxBytes: maxSourceBytes, maxTokens: 20_000, maxDepth: 64, maxValues: 20_000 };
/** The most files of a project, with those that they include. */
export const maxFiles = 32;

type Reader = Pick<UserHelper, "readFile" | "stat">;

/** Parses YAML off the main thread, on the share of the app's owner. */
export type YamlReader = (text: string, bounds: YamlBounds) => Promise<YamlReading>;

/** The values of texts with variables such as `${NAME}`, in the same order, as compose resolves them. */
export type TextResolver = (texts: readonly string[]) => Promise<readonly string[]>;

export interface ComposeSources {
  /** Digest of all of compose's inputs except the path of the checkout: equal digests mean equal projects. */
  readonly digest: string;
  /** The files, in no order. */
  readonly documents: readonly JsonValue[];
  /** Where included files find the values of their variables, if the project has none. */
  readonly environments: readonly IncludedEnvironment[];
}

/** Paths are relative to the app's directory. */
export interface IncludedEnvironment {
  /** Its `.env` is read if `files` is empty. */
  readonly directory: string;
  readonly files: readonly string[];
}

/**
 * Reads the files and everything that they include, as the owner.
 * @param root the app's directory
 * @param checkout path relative to `root`, or `.`
 * @param files paths relative to the checkout; the first determines the project directory
 * @param readYaml parses the files
 * @param resolveTexts resolves paths with variables; without it, they are rejected
 * @throws SvcError `package_invalid` with the file and the line
 */
export async function checkComposeSources(
  userHelper: Reader,
  root: string,
  checkout: string,
  files: readonly [string, ...string[]],
  readYaml: YamlReader,
  resolveTexts?: TextResolver,
): Promise<ComposeSources> {
  const [file] = files;
  const base = posix.join(checkout, posix.dirname(file));
  const documents: JsonValue[] = [];
  const environments: IncludedEnvironment[] = [];
  const digest = createHash("sha256");
  // A variable such as PWD may contain the path of the package.
  const own = `${posix.join(root, checkout)}/`;
  const add = (...parts: readonly (string | Buffer)[]): void => {
    for (const part of parts) digest.update(`${Buffer.byteLength(part)}:`).update(part);
  };
  const seen = new Set<string>();
  // Compose resolves the paths in all of these files from the directory of the first.
  const waiting: SourceFile[] = files.map((path) => ({
    path: insideCheckout(".env", path, "compose file", checkout, checkout),
    ...{ from: base, isIncluded: false },
  }));
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    // The same text refers to other files from another directory.
    const key = `${next.path}\0${next.from}`;
    if (seen.has(key)) continue;
    seen.add(key);
    if (seen.size > maxFiles) throw invalid(file, `the file includes more than ${maxFiles} files`);
    const name = posix.relative(checkout, next.path);
    const { bytes, document } = await readDocument(userHelper, root, next.path, name, readYaml);
    add(name, bytes);
    documents.push(document);
    const from = posix.join(root, next.from);
    const resolveHere =
      resolveTexts &&
      (async (texts: readonly string[]): Promise<readonly string[]> =>
        (await resolveTexts(texts)).map((text) =>
          text.startsWith(own) ? posix.relative(from, text) : text,
        ));
    // Compose reads `.env` if it exists, which may be a symlink out of the checkout.
    const references: Reference[] = [
      ...(await resolvedReferences(name, document, next.isIncluded, resolveHere)),
      { kind: "env_file", text: ".env" },
    ];
    for (const { text, kind, directory, envFiles } of references) {
      const path = insideCheckout(name, text, kind, checkout, next.from);
      // A symlink could lead anywhere, so the helper does not follow any.
      const type = await entryType(userHelper, root, path);
      if (type !== undefined && type !== "file" && type !== "directory") {
        throw invalid(name, `${kind} "${text}" is a symlink, or a parent of it is; use the file itself`);
      }
      add(kind, posix.relative(checkout, path), type ?? "");
      if (kind === "include" || kind === "extends") {
        const isIncluded = next.isIncluded || kind === "include";
        const from =
          directory === undefined
            ? posix.dirname(path)
            : insideCheckout(name, directory, "directory", checkout, next.from);
        waiting.push({ path, from, isIncluded });
        if (kind === "include") {
          const files = (envFiles ?? []).map((path) =>
            insideCheckout(name, path, "env_file", checkout, next.from),
          );
          environments.push({ directory: from, files });
        }
      }
      // Compose would use the parent of a directory that does not exist.
      if (kind === "directory" && type !== "directory")
        throw invalid(name, `project_directory "${text}" is not a directory of the package; create it`);
      if (type === "file" && (kind === "env_file" || kind === "label_file")) {
        add(await readText(userHelper, root, path, posix.relative(checkout, path)));
      }
    }
  }
  return { digest: digest.digest("hex"), documents, environments };
}

/** The variables whose values are the content of secrets and configs. */
export function* contentVariablesOf(
  document: JsonValue,
): Generator<{ readonly name: string; readonly kind: "secrets" | "configs" }> {
  const root = mergedRecord(document);
  for (const kind of ["secrets", "configs"] as const) {
    for (const part of Object.values(mergedRecord(root[kind]))) {
      const { environment: name } = mergedRecord(part);
      if (typeof name === "string") yield { name, kind };
    }
  }
}

/** A compose file, and how compose reads it. */
interface SourceFile {
  /** Like `from`, relative to the app's directory. */
  readonly path: string;
  /** The directory from which compose resolves its paths. */
  readonly from: string;
  /** Whether another file includes it. */
  readonly isIncluded: boolean;
}

async function readDocument(
  userHelper: Reader,
  root: string,
  path: string,
  name: string,
  readYaml: YamlReader,
): Promise<{ bytes: Buffer; document: JsonValue }> {
  const bytes = await readText(userHelper, root, path, name);
  requireClearText(bytes, name);
  const result = await readYaml(bytes.toString(), bounds);
  if ("value" in result) return { bytes, document: result.value };
  throw invalid(name, result.problems.map(({ line, message }) => `line ${line}: ${message}`).join("; "));
}

/**
 * Compose parses YAML 1.1, where these characters end a line, also that of a comment, and UTF-16 by its byte order mark.
 * It ignores a byte order mark at the start of each line.
 * @throws SvcError `package_invalid`
 */
function requireClearText(bytes: Buffer, name: string): void {
  if (!isUtf8(bytes)) throw invalid(name, "the file is not UTF-8 text; save it as UTF-8");
  const text = bytes.toString();
  const found = /\r(?!\n)|[\u0085\u2028\u2029]|(?<!^)\ufeff/.exec(text);
  if (found === null) return;
  const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
  const line = text.slice(0, found.index).split("\n").length;
  const problem = code === "FEFF" ? "is a byte order mark; remove it" : "ends a line; use line feeds";
  throw invalid(name, `line ${line} contains the character U+${code}, which ${problem}`);
}

async function readText(userHelper: Reader, root: string, path: string, name: string): Promise<Buffer> {
  try {
    return await userHelper.readFile(root, path, { maxBytes: maxSourceBytes });
  } catch (error) {
    if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
    throw invalid(name, `the file cannot be read: ${error.message}`);
  }
}

type ReferenceKind =
  | "compose file"
  | "include"
  | "extends"
  | "env_file"
  | "label_file"
  | "secret"
  | "config"
  | "build"
  | "directory";

interface Reference {
  readonly kind: ReferenceKind;
  readonly text: string;
  /** The directory from which compose resolves the paths in it, if that is not its own. */
  readonly directory?: string;
  /** Of an include: the files with the values of its variables. */
  readonly envFiles?: readonly string[];
}

/** Included files have other variables than the project, so their paths stay as written. */
async function resolvedReferences(
  name: string,
  document: JsonValue,
  isIncluded: boolean,
  resolveTexts: TextResolver | undefined,
): Promise<Reference[]> {
  const texts = new Set<string>();
  const references = [
    ...referencesOf(name, document, isIncluded, (text) => {
      if (text.includes("$")) texts.add(text);
      return text;
    }),
  ];
  if (texts.size === 0 || isIncluded || resolveTexts === undefined) return references;
  const written = [...texts];
  const values = await resolveTexts(written);
  const valueOf = new Map(written.map((text, at) => [text, values[at] ?? text]));
  return [...referencesOf(name, document, isIncluded, (text) => valueOf.get(text) ?? text)];
}

function* referencesOf(
  name: string,
  document: JsonValue,
  isIncluded: boolean,
  valueOf: (text: string) => string,
): Generator<Reference> {
  const root = mergedRecord(document);
  const pathsOf = (kind: ReferenceKind, value: JsonValue | undefined): string[] =>
    pathsIn(name, kind, value).map(valueOf);
  const texts = function* (kind: ReferenceKind, value: JsonValue | undefined): Generator<Reference> {
    for (const text of pathsOf(kind, value)) yield { kind, text };
  };
  for (const include of listOf(root["include"])) {
    const entry = typeof include === "string" ? { path: include } : mergedRecord(include);
    requireKnownKeys(name, entry, isIncluded);
    const paths = pathsOf("include", entry["path"]);
    const [chosen = ""] = pathsOf("directory", entry["project_directory"]);
    const directory = chosen || posix.dirname(paths[0] ?? "");
    const envFiles = pathsOf("env_file", entry["env_file"]);
    for (const text of paths) yield { kind: "include", text, directory, envFiles };
    yield* texts("directory", entry["project_directory"]);
    for (const text of envFiles) yield { kind: "env_file", text };
  }
  for (const service of Object.values(mergedRecord(root["services"])).map(mergedRecord)) {
    const { file } = mergedRecord(service["extends"]);
    yield* texts("extends", file);
    for (const entry of listOf(service["env_file"])) {
      yield* texts("env_file", isObject(entry) ? mergedRecord(entry)["path"] : entry);
    }
    yield* texts("label_file", service["label_file"]);
    const { build } = service;
    yield* texts("build", typeof build === "string" ? build : mergedRecord(build)["context"]);
  }
  for (const { file } of Object.values(mergedRecord(root["secrets"])).map(mergedRecord))
    yield* texts("secret", file);
  for (const { file } of Object.values(mergedRecord(root["configs"])).map(mergedRecord))
    yield* texts("config", file);
}

/** Keys of an include, in the only spelling that is accepted: compose ignores their case. */
const includeKeys = new Set(["path", "project_directory", "env_file"]);

function requireKnownKeys(name: string, entry: JsonObject, isIncluded: boolean): void {
  const odd = Object.keys(entry).find((key) => !includeKeys.has(key));
  if (odd !== undefined)
    throw invalid(name, `include has the key "${odd}"; use only ${[...includeKeys].join(", ")}`);
  // Compose resolves these from the working directory of its process.
  const moved = ["project_directory", "env_file"].find((key) => (entry[key] ?? null) !== null);
  if (isIncluded && moved !== undefined)
    throw invalid(
      name,
      `include has "${moved}" in an included file; include that file from the compose file`,
    );
}

/** @throws SvcError `package_invalid` for a number, which an older compose may read as text, and for other values */
function pathsIn(name: string, kind: ReferenceKind, value: JsonValue | undefined): string[] {
  return listOf(value).flatMap((item) => {
    if (typeof item === "string") return [item];
    if (item === null) return [];
    throw invalid(name, `${kind} ${JSON.stringify(item)} is not text; write it in quotes`);
  });
}

/**
 * The path below the app's directory. @throws SvcError `package_invalid` when it is outside the checkout, or unclear
 */
function insideCheckout(
  file: string,
  text: string,
  kind: ReferenceKind,
  checkout: string,
  from: string,
): string {
  if (text.includes("$"))
    throw invalid(file, `${kind} "${text}" must not contain variables; write the path itself`);
  const isLocal = !/^[A-Za-z][A-Za-z0-9+.-]*:/.test(text) && !text.startsWith("git@") && !text.includes("#");
  if (!isLocal) {
    const remedy =
      kind === "build" ? "add its files to the package, or write an image" : "add the file to the package";
    throw invalid(file, `${kind} "${text}" is not a file of the package; ${remedy}`);
  }
  const path = posix.normalize(posix.join(from, text));
  if (text.startsWith("/") || text.startsWith("~") || !isInside(checkout, path)) {
    throw invalid(file, `${kind} "${text}" is outside the package; move it into the package`);
  }
  // Compose joins the paths of nested files, and then replaces a leading `~` by the home directory.
  if (/(?:^|\/)~/.test(posix.relative(checkout, path)))
    throw invalid(file, `${kind} "${text}" has a part that starts with "~"; rename it`);
  return path;
}

/** `invalid_argument` `package_invalid`: a problem in a compose file. */
export function invalid(file: string, message: string): SvcError<"package_invalid"> {
  return new SvcError("package_invalid", `${file}: ${message}`);
}
