/** Finds the submodules of a checkout, and files that are not in its repository. */
import { SvcError } from "../../errors.ts";
import type { CachedCommit, GitObjects, TreeEntry } from "./git-objects.ts";
import { localAddressOf, parseSubmoduleUrl, redactUrls, type GitUrl } from "./git-url.ts";

/** The directory of a commit that is checked out. */
export interface CheckedOutDirectory {
  readonly gitUrl: GitUrl;
  /** `.` for the whole repository. */
  readonly directory: string;
  /** The tree of the directory. */
  readonly tree: string;
}

interface Submodule {
  /** Relative to the directory. */
  readonly path: string;
  readonly gitUrl: GitUrl;
  readonly commit: string;
}

/** Limit of `.gitmodules` and `.gitattributes`. */
const maxFileBytes = 64 * 1024;
const maxNamed = 3;

/**
 * The submodules below the directory, as `.gitmodules` describes them; see gitmodules(5).
 * @throws SvcError `package_invalid` if the URL of a submodule is not allowed
 */
export async function findSubmodules(
  objects: GitObjects,
  commit: CachedCommit,
  { gitUrl, directory, tree }: CheckedOutDirectory,
  signal?: AbortSignal,
): Promise<Submodule[]> {
  const { url: subject } = gitUrl;
  const file = await smallFile(objects, commit, commit.tree, ".gitmodules", subject, signal);
  if (file === undefined) return [];
  const values = await objects.configuration(commit, file.oid, subject, signal);
  const start = directory === "." ? "" : `${directory}/`;
  const urls = new Map<string, string>();
  for (const [key, path] of values) {
    const name = /^submodule\.([^]+)\.path$/.exec(key)?.[1];
    if (name === undefined || !path.startsWith(start)) continue;
    urls.set(path.slice(start.length), values.get(`submodule.${name}.url`) ?? "");
  }
  if (urls.size === 0) return [];
  const entries = await objects.entries(commit, tree, subject, signal, [...urls.keys()]);
  return entries
    .filter(({ type }) => type === "commit")
    .map(({ name: path, oid }) => {
      const url = urls.get(path) ?? "";
      const result = parseSubmoduleUrl(url, gitUrl);
      if ("problem" in result) throw invalidSubmodule(path, subject, url, result.problem);
      // Otherwise a remote repository could select a local one, or a port of this host to which root sends requests.
      const localAddress = localAddressOf(result.gitUrl);
      if (localAddress !== "" && localAddress !== localAddressOf(gitUrl))
        throw invalidSubmodule(path, subject, url, "is a repository of this host");
      return { path, gitUrl: result.gitUrl, commit: oid };
    });
}

function invalidSubmodule(path: string, subject: string, url: string, problem: string): SvcError {
  const message = `the submodule ${path} of ${subject} cannot be fetched: its URL "${redactUrls(url)}" ${problem}`;
  return new SvcError("package_invalid", message);
}

/** @throws SvcError `package_invalid` with the files of the directory whose content is in Git LFS */
export async function requireNoLfsFiles(
  objects: GitObjects,
  commit: CachedCommit,
  { gitUrl: { url }, tree }: CheckedOutDirectory,
  signal?: AbortSignal,
): Promise<void> {
  for (const root of new Set([commit.tree, tree])) {
    const file = await smallFile(objects, commit, root, ".gitattributes", url, signal);
    if (file === undefined) continue;
    const text = await objects.readBlob(commit, file.oid, url, maxFileBytes, signal);
    if (!/\sfilter=lfs(?:\s|$)/m.test(text.toString())) continue;
    const paths = await objects.lfsPointers(commit, tree, url, signal);
    if (paths.length === 0) return;
    const more = paths.length > maxNamed ? ` and ${paths.length - maxNamed} more` : "";
    throw new SvcError(
      "package_invalid",
      `svc does not fetch files of Git LFS, and ${url} has: ${paths.slice(0, maxNamed).join(", ")}${more}; clone it with git lfs, and install the directory: svc install ./DIR`,
    );
  }
}

async function smallFile(
  objects: GitObjects,
  commit: CachedCommit,
  tree: string,
  name: string,
  subject: string,
  signal: AbortSignal | undefined,
): Promise<TreeEntry | undefined> {
  const [entry] = await objects.entries(commit, tree, subject, signal, [name]);
  return entry?.type === "file" && entry.sizeBytes <= maxFileBytes ? entry : undefined;
}
