/**
 * Configs and secrets with inline content, or content from a variable. Compose would copy the content into containers
 * as root, through their mounts. Instead svc writes it to a file of the app's owner, which is mounted read-only like
 * `file:`.
 */
import { posix } from "node:path";
import type { OwnedTree } from "../../run-as/owned-tree.ts";
import type { JsonObject } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import { appTree } from "../app-tree.ts";
import { invalid } from "./compose-sources.ts";
import { fileMode, isSet, listOf, recordOf, textOf } from "./compose-values.ts";

const kinds = ["configs", "secrets"] as const;
type Kind = (typeof kinds)[number];

export interface InlineFile {
  /** Path relative to the app's directory. */
  readonly path: string;
  readonly content: string;
  readonly mode: number;
}

/**
 * Replaces `environment` by the values of the variables.
 * @param env the variables with which compose resolves the file, and those of `.env`
 * @throws SvcError `package_invalid` for a variable that is not set
 */
export function withVariables(
  document: JsonObject,
  env: Readonly<Record<string, string>>,
  file: string,
): JsonObject {
  return mapFiles(document, (part, key, kind) => {
    const { environment = null, ...rest } = part;
    if (!isSet(environment)) return part;
    const name = textOf(environment);
    const value = Object.hasOwn(env, name) ? env[name] : undefined;
    if (value === undefined) {
      throw invalid(
        file,
        `${kind} "${key}" uses the variable ${name}, which is not set; set it in .env, in the manifest's compose.env or by a setting`,
      );
    }
    return { ...rest, content: value };
  });
}

/**
 * Replaces inline content by files; returns the document and the files.
 * @param directory the app's
 * @param isRoots whether the app is root's: its configs are unchanged, with the owners and modes that compose sets
 */
export function withInlineFiles(
  document: JsonObject,
  { directory, isRoots }: { directory: string; isRoots: boolean },
): { document: JsonObject; files: InlineFile[] } {
  const files: InlineFile[] = [];
  const modes = { configs: modesOf(document, "configs"), secrets: modesOf(document, "secrets") };
  const placed = mapFiles(document, (part, key, kind) => {
    const { content = null, ...rest } = part;
    // Compose v2 does not support inline secrets, whoever declares them.
    if (typeof content !== "string" || (isRoots && kind === "configs")) return part;
    const path = posix.join(appTree.inline, `${kind}-${encodeURIComponent(key)}`);
    files.push({ path, content, mode: modes[kind].get(key) ?? 0o444 });
    return { ...rest, file: posix.join(directory, path) };
  });
  return { document: placed, files };
}

/** @param files their parent directories are held */
export async function writeInlineFiles(tree: OwnedTree, files: readonly InlineFile[]): Promise<void> {
  for (const { path, content, mode } of files) await tree.writeFile(path, content, mode);
}

/** By name: the union of the modes that services set, without special bits. */
function modesOf(document: JsonObject, kind: Kind): ReadonlyMap<string, number> {
  const modes = new Map<string, number>();
  for (const service of Object.values(recordOf(document["services"]))) {
    for (const reference of listOf(recordOf(service)[kind])) {
      const { source = null, mode = null } = recordOf(reference);
      if (mode === null) continue;
      const key = textOf(source);
      modes.set(key, (modes.get(key) ?? 0o400) | (fileMode(mode) & 0o777));
    }
  }
  return modes;
}

function mapFiles(
  document: JsonObject,
  map: (part: JsonObject, key: string, kind: Kind) => JsonObject,
): JsonObject {
  const changed = kinds
    .filter((kind) => isSet(document[kind]))
    .map((kind) => [
      kind,
      mapValues(recordOf(document[kind]), (part, key) => map(recordOf(part), key, kind)),
    ]);
  return { ...document, ...(Object.fromEntries(changed) as JsonObject) };
}
