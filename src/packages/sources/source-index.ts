/** Parses `index.yaml` of a source; `index.schema.json` describes its format. */
import { parseGitUrl, type GitUrl } from "../git/git-url.ts";
import { indexValidator } from "../manifest/own-schemas.ts";
import type { Permission } from "../manifest/permissions.ts";
import { parseSize } from "../manifest/quantities.ts";
import { createShapedReader } from "../manifest/shaped-document.ts";
import type { Problem } from "../manifest/yaml-document.ts";

/** The file that makes a directory, a repository or a URL a source. */
export const indexFileName = "index.yaml";

/** Limit of an index. */
export const maxIndexBytes = 1024 * 1024;

const bounds = { maxBytes: maxIndexBytes, maxTokens: 80_000, maxDepth: 16, maxValues: 80_000 };

/** Location of a package in an index. */
export type PackageLocation = { gitUrl: GitUrl } | { directory: string };

export interface IndexedPackage {
  id: string;
  /** Display name; the ID if the index has none. */
  name: string;
  summary: string;
  /** Optional information; empty if missing. */
  homepage: string;
  license: string;
  runtime: string;
  permissions: readonly Permission[];
  tags: readonly string[];
  sizeBytes?: number;
  location: PackageLocation;
}

/** A release of svc and where to get it; the location is empty if the index has none. */
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
    Partial<Omit<IndexedPackage, "id" | "location" | "sizeBytes">> & {
      repo?: string;
      directory?: string;
      size?: string;
    }
  >;
}

/** A thousand words take milliseconds: the daemon runs this in the thread of `yaml-thread.ts`. */
export function createIndexReader(): (text: string) => Promise<IndexResult> {
  const readShaped = createShapedReader(indexValidator, bounds);
  return async (text) => {
    const result = await readShaped(text);
    if ("problems" in result) return result;
    const { document } = result;
    const problems: Problem[] = [];
    const packages: IndexedPackage[] = [];
    // The schema was just checked.
    const whole = document.value as unknown as IndexDocument;
    for (const [id, entry] of Object.entries(whole.packages)) {
      const location = locationOf(entry);
      if ("problem" in location)
        problems.push({ line: document.lineOf(["packages", id]), message: `${id}: ${location.problem}` });
      else packages.push(readEntry(id, entry, location));
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
  location: PackageLocation,
): IndexedPackage {
  const sizeBytes = size === undefined ? undefined : parseSize(size);
  const listed = { id, name, summary, homepage, license, runtime, permissions, tags, location };
  return { ...listed, ...(sizeBytes !== undefined && { sizeBytes }) };
}

function locationOf({
  repo,
  directory,
}: {
  repo?: string;
  directory?: string;
}): PackageLocation | { problem: string } {
  if (repo !== undefined && directory === undefined) {
    const result = parseGitUrl(repo);
    return "problem" in result ? { problem: `the repo ${result.problem}` } : { gitUrl: result.gitUrl };
  }
  if (directory !== undefined && repo === undefined) return { directory };
  return { problem: `exactly one of "repo" and "directory" is required` };
}
