/** Branches and tags of a repository, and which of them is meant. */
import { setImmediate as breathe } from "node:timers/promises";
import semver from "semver";
import { notFound } from "../errors.ts";
import type { RevisionWish } from "./spec.ts";

/** What `git ls-remote --symref` shows. */
export interface RemoteRefs {
  /** The branch that HEAD points to, when it says so. */
  defaultBranch?: string;
  /** Branch name → commit. */
  branches: ReadonlyMap<string, string>;
  /** Tag name → object that it points to in the end: the commit. */
  tags: ReadonlyMap<string, string>;
  /** The one with the highest semantic version, when there is any. */
  newestTag?: string;
}

/** One version of a repository: the branch that is tracked, or the tag that is installed. */
export interface Revision {
  branch: string;
  tag: string;
  /** Full object id, as the remote said it. */
  commit: string;
}

/** Lines that are read between two turns of the event loop. */
const linesPerTurn = 500;

/** Reads the output of `git ls-remote --symref`; lines of any other form are skipped. */
export async function readRefs(output: string): Promise<RemoteRefs> {
  const branches = new Map<string, string>();
  const tags = new Map<string, string>();
  const newest = new NewestVersion();
  let defaultBranch: string | undefined;
  for (const [index, line] of output.split("\n").entries()) {
    if (index % linesPerTurn === 0) await breathe();
    const head = /^ref: refs\/heads\/(\S+)\tHEAD$/.exec(line)?.[1];
    if (head !== undefined) defaultBranch = head;
    const [, oid, kind, name] = /^([0-9a-f]{40}|[0-9a-f]{64})\trefs\/(heads|tags)\/(\S+)$/.exec(line) ?? [];
    if (oid === undefined || name === undefined) continue;
    if (kind === "tags") {
      // The peeled line of an annotated tag follows its own and wins.
      const tag = name.replace(/\^\{\}$/, "");
      if (!tags.has(tag)) newest.consider(tag);
      tags.set(tag, oid);
    } else branches.set(name, oid);
  }
  return {
    branches,
    tags,
    ...(defaultBranch !== undefined && { defaultBranch }),
    ...(newest.tag !== undefined && { newestTag: newest.tag }),
  };
}

/** The tag with the highest semantic version; pre-releases and other tags do not count. A leading `v` is fine. */
class NewestVersion {
  tag: string | undefined;
  #version: semver.SemVer | undefined;

  consider(tag: string): void {
    const version = semver.parse(tag);
    if (version === null || version.prerelease.length > 0) return;
    if (this.#version !== undefined && version.compare(this.#version) <= 0) return;
    this.#version = version;
    this.tag = tag;
  }
}

/** Whether tag `a` is a higher semantic version than tag `b`; `undefined` when one of them is none. */
export function isNewerTag(a: string, b: string): boolean | undefined {
  const [versionA, versionB] = [semver.parse(a), semver.parse(b)];
  return versionA === null || versionB === null ? undefined : versionA.compare(versionB) > 0;
}

/**
 * Picks what was wished for; without a wish the newest tag, and where there is none, the default branch.
 * A tag is found with and without its leading `v`.
 * @throws SvcError `not_found` that names the repository and what is missing.
 */
export function pickRevision(refs: RemoteRefs, wish: RevisionWish, url: string): Revision {
  if (wish.branch !== undefined) return branchRevision(refs, wish.branch, url);
  if (wish.tag !== undefined) {
    const tag = [wish.tag, `v${wish.tag}`].find((name) => refs.tags.has(name));
    if (tag === undefined)
      throw notFound("tag", wish.tag, `no tag "${wish.tag}" in ${url}${known("tags", refs.tags)}`);
    return { branch: "", tag, commit: refs.tags.get(tag) ?? "" };
  }
  const tag = refs.newestTag;
  if (tag !== undefined) return { branch: "", tag, commit: refs.tags.get(tag) ?? "" };
  const [only] = refs.branches.size === 1 ? refs.branches.keys() : [];
  const branch = refs.defaultBranch ?? only;
  if (branch === undefined)
    throw notFound("branch", "HEAD", `${url} has neither a version tag nor a default branch: name a branch`);
  return branchRevision(refs, branch, url);
}

function branchRevision(refs: RemoteRefs, branch: string, url: string): Revision {
  const commit = refs.branches.get(branch);
  if (commit === undefined)
    throw notFound("branch", branch, `no branch "${branch}" in ${url}${known("branches", refs.branches)}`);
  return { branch, tag: "", commit };
}

function known(kind: string, refs: ReadonlyMap<string, string>): string {
  const names = [...refs.keys()];
  if (names.length === 0) return `; it has no ${kind}`;
  return `; its ${kind}: ${names.slice(-5).join(", ")}${names.length > 5 ? ", …" : ""}`;
}
