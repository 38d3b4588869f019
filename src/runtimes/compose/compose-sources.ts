/**
 * Checks the files that a compose file refers to before compose reads them: nothing from the network, nothing outside
 * the checkout.
 */
import { createHash, randomUUID } from "node:crypto";
import { posix } from "node:path";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { JsonValue } from "../../lib/json.ts";
import type { YamlBounds } from "../../packages/manifest/yaml-document.ts";
import type { YamlReading } from "../../packages/manifest/yaml-thread.ts";
import { entryType } from "../entry-type.ts";
import { listOf, mergedRecord } from "./compose-values.ts";

const bounds = { maxBytes: 512 * 1024, maxTokens: 20_000, maxDepth: 64, maxValues: 20_000 };
const maxFiles = 32;

type Reader = Pick<UserHelper, "readFile" | "stat">;

/** Parses YAML off the main thread, on the share of the app's owner. */
export type YamlReader = (text: string, bounds: YamlBounds) => Promise<YamlReading>;

/**
 * Reads the file and everything that it includes, as the owner. Resolves to a digest of all of compose's inputs:
 * while the digest is the same, so is the project.
 * @param root the app's directory
 * @param checkout path relative to `root`
 * @param file path relative to the checkout
 * @param readYaml parses the files
 * @throws SvcError `package_invalid` with the file and the line
 */
export async function checkComposeSources(
  userHelper: Reader,
  root: string,
  checkout: string,
  file: string,
  readYaml: YamlReader,
): Promise<string> {
  const digest = createHash("sha256");
  const add = (...parts: readonly (string | Buffer)[]): void => {
    for (const part of parts) digest.update(`${Buffer.byteLength(part)}:`).update(part);
  };
  const seen = new Set<string>();
  const waiting = [posix.join(checkout, file)];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    if (seen.has(next)) continue;
    seen.add(next);
    if (seen.size > maxFiles) throw invalid(file, `it includes more than ${maxFiles} files`);
    const name = posix.relative(checkout, next);
    const { bytes, document } = await readDocument(userHelper, root, next, name, readYaml);
    add(name, bytes);
    // Compose reads `.env` if it exists, which may be a symlink out of the checkout.
    const references = [...referencesOf(document), { kind: "env_file", text: ".env" } as const];
    for (const { text, kind } of references) {
      const path = insideCheckout(name, text, kind, checkout, posix.dirname(next));
      // A symlink could lead anywhere, so the helper does not follow any.
      const type = await entryType(userHelper, root, path);
      if (type !== undefined && type !== "file" && type !== "directory") {
        throw invalid(name, `${kind} "${text}" is a symlink, or a parent of it is; use the file itself`);
      }
      add(kind, path, type ?? "");
      if (kind === "include" || kind === "extends") waiting.push(path);
      if (type === "file" && (kind === "env_file" || kind === "label_file")) {
        // Compose decides whether it can be read; until then assume a change.
        add(await readText(userHelper, root, path, name).catch(() => randomUUID()));
      }
      // A directory may contain a file `.env`.
      if (kind === "directory") add(randomUUID());
    }
  }
  return digest.digest("hex");
}

async function readDocument(
  userHelper: Reader,
  root: string,
  path: string,
  name: string,
  readYaml: YamlReader,
): Promise<{ bytes: Buffer; document: JsonValue }> {
  const bytes = await readText(userHelper, root, path, name);
  const result = await readYaml(bytes.toString(), bounds);
  if ("value" in result) return { bytes, document: result.value };
  throw invalid(name, result.problems.map(({ line, message }) => `line ${line}: ${message}`).join("; "));
}

async function readText(userHelper: Reader, root: string, path: string, name: string): Promise<Buffer> {
  try {
    return await userHelper.readFile(root, path, { maxBytes: bounds.maxBytes });
  } catch (error) {
    if (!(error instanceof SvcError) || error.code === "unavailable") throw error;
    throw invalid(name, `it cannot be read: ${error.message}`);
  }
}

type ReferenceKind =
  "include" | "extends" | "env_file" | "label_file" | "secret" | "config" | "build" | "directory";

interface Reference {
  readonly kind: ReferenceKind;
  readonly text: string;
}

function* referencesOf(document: JsonValue): Generator<Reference> {
  const root = mergedRecord(document);
  for (const include of listOf(root["include"])) {
    const entry = typeof include === "string" ? { path: include } : mergedRecord(include);
    yield* texts("include", entry["path"]);
    yield* texts("directory", entry["project_directory"]);
    yield* texts("env_file", entry["env_file"]);
  }
  for (const service of Object.values(mergedRecord(root["services"])).map(mergedRecord)) {
    const { file } = mergedRecord(service["extends"]);
    yield* texts("extends", file);
    for (const entry of listOf(service["env_file"])) {
      yield* texts("env_file", typeof entry === "string" ? entry : mergedRecord(entry)["path"]);
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

function* texts(kind: ReferenceKind, value: JsonValue | undefined): Generator<Reference> {
  for (const item of listOf(value)) if (typeof item === "string") yield { kind, text: item };
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
  if (!isLocal)
    throw invalid(file, `${kind} "${text}" is not a file of the package; add the file to the package`);
  const path = posix.normalize(posix.join(from, text));
  const isInside = path === checkout || path.startsWith(`${checkout}/`);
  if (text.startsWith("/") || text.startsWith("~") || !isInside) {
    throw invalid(file, `${kind} "${text}" is outside the package; move it into the package`);
  }
  return path;
}

/** `invalid_argument` `package_invalid`: a problem in a compose file. */
export function invalid(file: string, message: string): SvcError<"package_invalid"> {
  return new SvcError("package_invalid", `${file}: ${message}`);
}
