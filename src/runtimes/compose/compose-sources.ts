/**
 * What a compose file reads beside itself, looked at before any program does: nothing from the network, nothing outside of
 * the checkout (threats 33, 34).
 */
import { createHash, randomUUID } from "node:crypto";
import { posix } from "node:path";
import { SvcError } from "../../errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { JsonValue } from "../../lib/json.ts";
import type { YamlBounds } from "../../packages/yaml-document.ts";
import type { YamlReading } from "../../packages/yaml-thread.ts";
import { entryType } from "../entry-type.ts";
import { listOf, mergedRecord } from "./compose-values.ts";

const bounds = { maxBytes: 512 * 1024, maxTokens: 20_000, maxDepth: 64, maxValues: 20_000 };
const maxFiles = 32;

type Reader = Pick<Identity, "readFile" | "stat">;

/** Reads YAML off the main thread, in turns of the app's owner. */
export type YamlReader = (text: string, bounds: YamlBounds) => Promise<YamlReading>;

/**
 * Reads the file and all that it takes in, with the owner's identity. Resolves with a digest of all that compose makes its project
 * of: as long as that is the same, so is the project.
 * @param root the app's directory
 * @param checkout relative to `root`
 * @param file relative to the checkout
 * @param readYaml of what it says
 * @throws SvcError `package_invalid` with the file and the line
 */
export async function checkComposeSources(
  identity: Reader,
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
    if (seen.size > maxFiles) throw invalid(file, `it takes in more than ${maxFiles} files`);
    const name = posix.relative(checkout, next);
    const { bytes, document } = await readDocument(identity, root, next, name, readYaml);
    add(name, bytes);
    // Read by compose where it is there, and may lead out as well.
    const references = [...referencesOf(document), { kind: "env_file", text: ".env" } as const];
    for (const { text, kind } of references) {
      const path = insideCheckout(name, text, kind, checkout, posix.dirname(next));
      // A link could lead anywhere: the identity refuses to cross one.
      const type = await entryType(identity, root, path);
      if (type !== undefined && type !== "file" && type !== "directory") {
        throw invalid(name, `${kind} "${text}" is, or lies behind, a link: put the file itself there`);
      }
      add(kind, path, type ?? "");
      if (kind === "include" || kind === "extends") waiting.push(path);
      if (type === "file" && (kind === "env_file" || kind === "label_file")) {
        // Whether compose can read it is compose's to say; until then no two are alike.
        add(await readText(identity, root, path, name).catch(() => randomUUID()));
      }
      // It may have an environment file of its own.
      if (kind === "directory") add(randomUUID());
    }
  }
  return digest.digest("hex");
}

async function readDocument(
  identity: Reader,
  root: string,
  path: string,
  name: string,
  readYaml: YamlReader,
): Promise<{ bytes: Buffer; document: JsonValue }> {
  const bytes = await readText(identity, root, path, name);
  const result = await readYaml(bytes.toString(), bounds);
  if ("value" in result) return { bytes, document: result.value };
  throw invalid(name, result.problems.map(({ line, message }) => `line ${line}: ${message}`).join("; "));
}

async function readText(identity: Reader, root: string, path: string, name: string): Promise<Buffer> {
  try {
    return await identity.readFile(root, path, { maxBytes: bounds.maxBytes });
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

/** The path below the app's directory. @throws SvcError `package_invalid` when it is another place, or nobody can tell */
function insideCheckout(
  file: string,
  text: string,
  kind: ReferenceKind,
  checkout: string,
  from: string,
): string {
  if (text.includes("$")) throw invalid(file, `${kind} "${text}" must not depend on variables: write it out`);
  const isLocal = !/^[A-Za-z][A-Za-z0-9+.-]*:/.test(text) && !text.startsWith("git@") && !text.includes("#");
  if (!isLocal) throw invalid(file, `${kind} "${text}" is not a file of the package: put it there`);
  const path = posix.normalize(posix.join(from, text));
  const isInside = path === checkout || path.startsWith(`${checkout}/`);
  if (text.startsWith("/") || text.startsWith("~") || !isInside) {
    throw invalid(file, `${kind} "${text}" leads out of the package: put what it names inside`);
  }
  return path;
}

/** `invalid_argument` `package_invalid`: what is wrong in a compose file. */
export function invalid(file: string, message: string): SvcError<"package_invalid"> {
  return new SvcError("package_invalid", `${file}: ${message}`);
}
