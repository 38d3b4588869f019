/**
 * Loads the index of a source from a directory, over http, or from a git repository; uses the last valid one if that
 * fails.
 */
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { Log } from "../../lib/log.ts";
import { fetchIndex, isIndexUrl } from "./fetch-index.ts";
import type { GitCheckout, GitRepositories, GitRepository } from "../git/git-repositories.ts";

import { parseGitUrl, redactUrls, type GitUrl } from "../git/git-url.ts";
import type { WorkOptions } from "../../work/progress.ts";
import type { SourceConfig } from "./source-list.ts";
import { indexFileName, maxIndexBytes, type SourceIndex } from "./source-index.ts";
import { describesApp, storeBounds, storeIndex } from "../git/store-layout.ts";
import type { YamlThread } from "../manifest/yaml-thread.ts";
import { mapBounded } from "../../lib/map-bounded.ts";

/** Limit of cached indexes in memory: a changed credential counts as another index. */
const maxFreshIndexes = 64;
const maxIndexFiles = 256;
/** How long a remote index is cached. */
const freshMs = 60_000;
/** Timeout of an http request. */
const fetchTimeoutMs = 20_000;

/** Base of the relative directories in an index. */
export type IndexBase =
  { kind: "directory"; path: string } | { kind: "git"; gitUrl: GitUrl } | { kind: "http" };

export interface LoadedIndex {
  index: SourceIndex;
  base: IndexBase;
  /** Sentence about omitted apps, if any. */
  cut?: string | undefined;
}

/** The text of an index, or an equivalent, and its commit. */
interface BroughtIndex {
  readonly text: string;
  readonly commit?: string;
  readonly cut?: string | undefined;
}

export interface SourceIndexLoader {
  /** @throws SvcError `source_failed` with the source's name. */
  load: (source: SourceConfig, uid: number, work: WorkOptions) => Promise<LoadedIndex>;
}

export interface SourceIndexLoaderOptions {
  /** Directory of the daemon for the last valid index of each remote source. */
  cacheDirectory: string;
  userHelpers: UserHelpers;
  git: GitRepositories;
  yaml: Pick<YamlThread, "index" | "read">;
  now: () => number;
  log: Pick<Log, "warn">;
}

export function createSourceIndexLoader(options: SourceIndexLoaderOptions): SourceIndexLoader {
  const { cacheDirectory, userHelpers, git, yaml, now, log } = options;
  const fresh = new Map<string, BroughtIndex & { loaded: LoadedIndex; untilMs: number }>();

  async function parse(
    source: SourceConfig,
    text: string,
    uid: number,
    { signal }: WorkOptions,
  ): Promise<SourceIndex> {
    const result = await yaml.index(text, uid, signal);
    if ("index" in result) return result.index;
    const list = result.problems.map(({ line, message }) => `line ${line}: ${message}`).join("; ");
    throw sourceFailed(source, `the source's ${indexFileName} is not valid: ${list}`);
  }

  /** Directories are read as the caller, and never cached. */
  async function loadDirectory(source: SourceConfig, uid: number, work: WorkOptions): Promise<LoadedIndex> {
    const userHelper = await userHelpers.as(uid);
    const data = await userHelper
      .readFile(source.url, indexFileName, { maxBytes: maxIndexBytes, signal: work.signal })
      .catch((error: unknown) => {
        if (!(error instanceof SvcError) || error.code !== "not_found") throw error;
        throw sourceFailed(source, `there is no ${indexFileName} in ${source.url}`, error);
      });
    return {
      index: await parse(source, data.toString(), uid, work),
      base: { kind: "directory", path: source.url },
    };
  }

  /** @param known the last loaded index */
  async function readIndex(
    repository: GitRepository,
    uid: number,
    known: BroughtIndex | undefined,
    work: WorkOptions,
  ): Promise<BroughtIndex> {
    await using checkout = await repository.checkout({}, work);
    const { commit } = checkout.revision;
    const brought =
      known?.commit === commit
        ? known
        : await checkout.readFile(indexFileName, maxIndexBytes, work.signal).then(
            (bytes): BroughtIndex => ({ text: String(bytes) }),
            (error: unknown) => {
              if (error instanceof SvcError && error.code === "not_found")
                return readStore(checkout, uid, error as SvcError, work);
              throw error;
            },
          );
    checkout.retain();
    return { text: brought.text, commit, cut: brought.cut };
  }

  /** @param missing the error to throw if the repository is not a supported store */
  async function readStore(
    checkout: GitCheckout,
    uid: number,
    missing: SvcError,
    { signal }: WorkOptions,
  ): Promise<BroughtIndex> {
    const { files, total } = await checkout.files({ ...storeBounds, isSelected: describesApp }, signal);
    const text = await storeIndex(files, (yamlText, bounds) => yaml.read(yamlText, bounds, uid, signal));
    if (text === undefined) throw missing;
    const cut = `the index lists ${total} apps, but only the first ${files.size} are listed`;
    return { text, ...(total > files.size && { cut }) };
  }

  async function loadRemote(source: SourceConfig, uid: number, work: WorkOptions): Promise<LoadedIndex> {
    const gitUrl = isIndexUrl(source.url) ? undefined : gitUrlOf(source);
    const repository = gitUrl && git.open(gitUrl, uid);
    // An index that requires a user's credential is visible only to that user.
    const key = `${repository?.scope ?? "network"}\n${source.url}`;
    const hit = fresh.get(key);
    if (hit !== undefined && hit.untilMs > now()) return hit.loaded;
    const base: IndexBase = gitUrl === undefined ? { kind: "http" } : { kind: "git", gitUrl };
    const file = join(cacheDirectory, `${createHash("sha256").update(key).digest("hex")}.yaml`);
    try {
      const brought: BroughtIndex =
        repository === undefined
          ? { text: await fetchIndex(source.url, fetchTimeoutMs, work.signal) }
          : await readIndex(repository, uid, hit, work);
      const loaded = { index: await parse(source, brought.text, uid, work), base, cut: brought.cut };
      await save(file, brought.text);
      remember(key, brought, loaded);
      return loaded;
    } catch (error) {
      if (error instanceof SvcError && error.code === "canceled") throw error;
      const lastGood = await readFile(file, "utf8").catch(() => undefined);
      if (lastGood === undefined) throw error;
      const details = { err: error, source: source.name };
      log.warn(details, "a source cannot be reached; using its last valid index");
      return { index: await parse(source, lastGood, uid, work), base };
    }
  }

  async function save(file: string, text: string): Promise<void> {
    await mkdir(cacheDirectory, { recursive: true, mode: 0o700 });
    const temporary = `${file}.${process.pid}`;
    await writeFile(temporary, text, { mode: 0o600 });
    await rename(temporary, file);
    await removeOldest(cacheDirectory, maxIndexFiles);
  }

  function remember(key: string, brought: BroughtIndex, loaded: LoadedIndex): void {
    fresh.delete(key);
    fresh.set(key, { ...brought, loaded, untilMs: now() + freshMs });
    const [oldest] = fresh.keys();
    if (fresh.size > maxFreshIndexes && oldest !== undefined) fresh.delete(oldest);
  }

  return {
    async load(source, uid, work) {
      try {
        const local = source.url.startsWith("/");
        return await (local ? loadDirectory(source, uid, work) : loadRemote(source, uid, work));
      } catch (error) {
        if (error instanceof SvcError && (error.reason === "source_failed" || error.code === "canceled"))
          throw error;
        const message = error instanceof SvcError ? error.message : "the source's index cannot be read";
        throw sourceFailed(source, message, error);
      }
    },
  };
}

function gitUrlOf(source: SourceConfig): GitUrl {
  const result = parseGitUrl(source.url);
  if ("gitUrl" in result) return result.gitUrl;
  throw sourceFailed(source, `the url "${redactUrls(source.url)}" ${result.problem}`);
}

function sourceFailed(source: SourceConfig, why: string, cause?: unknown): SvcError<"source_failed"> {
  return new SvcError("source_failed", `the source "${source.name}" failed: ${why}`, { cause });
}

/** Removes all but the newest files of a daemon-owned directory. */
export async function removeOldest(directory: string, maxFiles: number): Promise<void> {
  const names = await readdir(directory);
  if (names.length <= maxFiles) return;
  const files = await mapBounded(names, 16, async (name) => {
    const path = join(directory, name);
    // Another process may have removed the file.
    const mtimeMs = await stat(path).then(
      (stats) => stats.mtimeMs,
      () => 0,
    );
    return { path, mtimeMs };
  });
  const gone = files.toSorted((a, b) => b.mtimeMs - a.mtimeMs).slice(maxFiles);
  for (const { path } of gone) await rm(path, { force: true });
}
