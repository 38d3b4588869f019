/** Parses the branches and tags of a repository, and selects one. */
import { setImmediate as breathe } from "node:timers/promises";
import { notFound } from "../../errors.ts";
import type { RequestedRevision } from "../spec.ts";
import { isNewerTag, NewestTags } from "./version-tags.ts";

/** Output of `git ls-remote --symref`. */
export interface RemoteRefs {
  /** The branch of HEAD, if reported. */
  defaultBranch?: string;
  /** Branch name → commit. */
  branches: ReadonlyMap<string, string>;
  /** Tag name → peeled object: the commit. */
  tags: ReadonlyMap<string, string>;
  newestTags: NewestTags;
}

/** A version of a repository: a tracked branch, an installed tag, or a commit. */
export interface Revision {
  branch: string;
  tag: string;
  /** Full object ID, as reported by the remote. */
  commit: string;
}

/** A full object ID, SHA-1 or SHA-256. */
export const wholeCommit = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;
const partOfCommit = /^[0-9a-f]{7,63}$/;
/** Lines to parse before yielding to the event loop. */
const linesPerTurn = 500;

/** Parses the output of `git ls-remote --symref`; skips lines of other forms. */
export async function readRefs(output: string): Promise<RemoteRefs> {
  const branches = new Map<string, string>();
  const tags = new Map<string, string>();
  const newestTags = new NewestTags();
  let defaultBranch: string | undefined;
  for (const [index, line] of output.split("\n").entries()) {
    if (index % linesPerTurn === 0) await breathe();
    const head = /^ref: refs\/heads\/(.+)\tHEAD$/.exec(line)?.[1];
    if (head !== undefined) defaultBranch = head;
    const [, oid, kind, name] = /^([0-9a-f]{40}|[0-9a-f]{64})\trefs\/(heads|tags)\/(.+)$/.exec(line) ?? [];
    if (oid === undefined || name === undefined) continue;
    if (kind === "tags") {
      // The peeled line of an annotated tag comes second and wins.
      const tag = name.replace(/\^\{\}$/, "");
      if (!tags.has(tag)) newestTags.consider(tag);
      tags.set(tag, oid);
    } else branches.set(name, oid);
  }
  return {
    branches,
    tags,
    newestTags,
    ...(defaultBranch !== undefined && { defaultBranch }),
  };
}

/**
 * Selects the requested revision; without a request, the newest tag, else the default branch. Tags match with or
 * without a leading `v`. A full hash is a commit.
 * @param directory of the package; `.` for the root
 * @throws SvcError `not_found` with the repository and the missing name.
 */
export function pickRevision(
  refs: RemoteRefs,
  wish: RequestedRevision,
  url: string,
  directory = ".",
): Revision {
  if (wish.ref !== undefined) {
    const isTag = refs.tags.has(wish.ref) || wholeCommit.test(wish.ref) || !refs.branches.has(wish.ref);
    return pickRevision(refs, isTag ? { tag: wish.ref } : { branch: wish.ref }, url);
  }
  if (wish.branch !== undefined) return branchRevision(refs, wish.branch, url);
  if (wish.tag !== undefined) {
    // As in git, a full hash is never the name of a tag.
    if (wholeCommit.test(wish.tag)) return { branch: "", tag: "", commit: wish.tag };
    const tag = [wish.tag, `v${wish.tag}`].find((name) => refs.tags.has(name));
    if (tag === undefined) {
      const advice = partOfCommit.test(wish.tag)
        ? "; for a commit, specify its full hash"
        : known("tags", refs.tags);
      throw notFound("tag", wish.tag, `no tag "${wish.tag}" in ${url}${advice}`);
    }
    return { branch: "", tag, commit: refs.tags.get(tag) ?? "" };
  }
  const tag = refs.newestTags.of(directory);
  if (tag !== undefined) return { branch: "", tag, commit: refs.tags.get(tag) ?? "" };
  const [only] = refs.branches.size === 1 ? refs.branches.keys() : [];
  const branch = refs.defaultBranch ?? only;
  if (branch === undefined || !refs.branches.has(branch))
    throw notFound("branch", branch ?? "HEAD", `${url} ${explainNoDefault(refs)}`);
  return branchRevision(refs, branch, url);
}

function explainNoDefault({ branches, tags }: RemoteRefs): string {
  if (branches.size + tags.size === 0) return "is empty: it has no branches and no tags";
  const choice = branches.size > 0 ? `branch${known("branches", branches)}` : `tag${known("tags", tags)}`;
  return `has neither a version tag nor a default branch; specify a ${choice}`;
}

function branchRevision(refs: RemoteRefs, branch: string, url: string): Revision {
  const commit = refs.branches.get(branch);
  if (commit === undefined) {
    const advice = refs.tags.has(branch)
      ? `; ${branch} is a tag, so use --version ${branch} or ${url}#${branch}`
      : known("branches", refs.branches);
    throw notFound("branch", branch, `no branch "${branch}" in ${url}${advice}`);
  }
  return { branch, tag: "", commit };
}

function known(kind: string, refs: ReadonlyMap<string, string>): string {
  const names = [...refs.keys()];
  if (names.length === 0) return `; it has no ${kind}`;
  return `; its ${kind}: ${names.slice(-5).join(", ")}${names.length > 5 ? ", …" : ""}`;
}

/** The tag that an upgrade selects: the newest one with the same prefix as `tag`, and never an older one. */
export function newestLike(refs: RemoteRefs, tag: string): string | undefined {
  const newest = refs.newestTags.like(tag);
  const stays = refs.tags.has(tag) && (newest === undefined || isNewerTag(tag, newest) === true);
  return stays ? tag : newest;
}
