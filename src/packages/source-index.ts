/** `index.yaml` of a source. Its shape is told by `index.schema.json`. */
import { parseGitUrl, type GitUrl } from "./git-url.ts";
import { indexValidator } from "./own-schemas.ts";
import type { Permission } from "./permissions.ts";
import { parseSize } from "./quantities.ts";
import { createShapedReader } from "./shaped-document.ts";
import type { Problem } from "./yaml-document.ts";

/** The file that makes a directory, a repository or a URL a source. */
export const indexFileName = "index.yaml";

/** An index is at most this long. */
export const maxIndexBytes = 1024 * 1024;

const bounds = { maxBytes: maxIndexBytes, maxTokens: 80_000, maxDepth: 16, maxValues: 80_000 };

/** Where an index says that a package is. */
export type IndexedPlace = { gitUrl: GitUrl } | { directory: string };

export interface IndexedPackage {
  id: string;
  /** Display name; the id when the index has none. */
  name: string;
  summary: string;
  /** What the index says beside that, each empty where it says nothing. */
  homepage: string;
  license: string;
  runtime: string;
  permissions: readonly Permission[];
  tags: readonly string[];
  sizeBytes?: number;
  place: IndexedPlace;
}

/** A version of svc itself, and where one gets it; the place is empty where the index does not say. */
export interface SvcRelease {
  readonly version: string;
  readonly url: string;
}

export interface SourceIndex {
  packages: IndexedPackage[];
  svc?: SvcRelease;
}

export type IndexResult = { index: SourceIndex } | { problems: readonly Problem[] };

interface IndexDocument {
  svc?: { version: string; url?: string };
  packages: Record<
    string,
    Partial<Omit<IndexedPackage, "id" | "place" | "sizeBytes">> & {
      repo?: string;
      directory?: string;
      size?: string;
    }
  >;
}

/** It takes milliseconds for a thousand words: in a daemon it runs in the thread of `yaml-thread.ts`. */
export function createIndexReader(): (text: string) => Promise<IndexResult> {
  const readShaped = createShapedReader(indexValidator, bounds);
  return async (text) => {
    const result = await readShaped(text);
    if ("problems" in result) return result;
    const { document } = result;
    const problems: Problem[] = [];
    const packages: IndexedPackage[] = [];
    // The schema has just said that it has this shape.
    const whole = document.value as unknown as IndexDocument;
    for (const [id, entry] of Object.entries(whole.packages)) {
      const place = placeOf(entry);
      if ("problem" in place)
        problems.push({ line: document.lineOf(["packages", id]), message: `${id}: ${place.problem}` });
      else packages.push(readEntry(id, entry, place));
    }
    if (problems.length > 0) return { problems };
    const { svc } = whole;
    return { index: { packages, ...(svc !== undefined && { svc: { url: "", ...svc } }) } };
  };
}

function readEntry(
  id: string,
  {
    name = id,
    summary = "",
    homepage = "",
    license = "",
    runtime = "",
    permissions = [],
    tags = [],
    size,
  }: IndexDocument["packages"][string],
  place: IndexedPlace,
): IndexedPackage {
  const sizeBytes = size === undefined ? undefined : parseSize(size);
  const told = { id, name, summary, homepage, license, runtime, permissions, tags, place };
  return { ...told, ...(sizeBytes !== undefined && { sizeBytes }) };
}

function placeOf({
  repo,
  directory,
}: {
  repo?: string;
  directory?: string;
}): IndexedPlace | { problem: string } {
  if (repo !== undefined && directory === undefined) {
    const result = parseGitUrl(repo);
    return "problem" in result ? { problem: `the repo ${result.problem}` } : { gitUrl: result.gitUrl };
  }
  if (directory !== undefined && repo === undefined) return { directory };
  return { problem: `exactly one of "repo" and "directory" must say where the package is` };
}
