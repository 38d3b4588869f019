/**
 * Limits the disk space of fetched commits, per user and in total; the least recently used ones are removed first.
 */
import { lstat, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { SvcError } from "../../errors.ts";
import { mapBounded } from "../../lib/map-bounded.ts";
import { isText, isInteger, objectOf } from "../../store/row-document.ts";
import { wholeCommit } from "./git-refs.ts";

export interface CacheBounds {
  /** Limit of one user's commits. */
  maxBytesPerUser: number;
  /** Limit of all commits. */
  maxBytes: number;
}

export interface CacheSpaceOptions {
  /** Contains a directory per user, named by the uid. */
  directory: string;
  bounds: CacheBounds;
  now: () => number;
}

/** Keeps a commit in the cache while it is used. */
export interface CacheHold extends AsyncDisposable {
  /** Keeps a newly fetched commit for later use; otherwise it is removed when the hold ends. */
  retain: () => void;
}

/** Content of the file beside a commit's objects. */
export interface CommitFacts {
  tree: string;
  sizeBytes: number;
}

export const factsFile = "svc.json";
const areFacts = objectOf<CommitFacts>({ tree: isText, sizeBytes: isInteger });

const commitEnding = ".git";

/**
 * Name of a commit's directory.
 * @throws SvcError `git_failed` for anything but an object ID, which could lead out of the cache
 */
export function commitDirectory(commit: string): string {
  if (!wholeCommit.test(commit))
    throw new SvcError("git_failed", `the commit ${JSON.stringify(commit)} is not an object ID`);
  return `${commit}${commitEnding}`;
}

interface Entry {
  uid: number;
  path: string;
  sizeBytes: number;
  usedMs: number;
  /** Being fetched, by this or another process, or left by a killed one. */
  isTemporary: boolean;
}

interface Holders {
  count: number;
  isRetained: boolean;
}

/** Limited, because small commits cost more directory entries than bytes. */
const maxCommitsPerUser = 500;
/** Older unfinished fetches were left by a killed process. */
const leftoverMs = 3_600_000;
const readAtOnce = 16;

export class CacheSpace {
  readonly #options: CacheSpaceOptions;
  readonly #holders = new Map<string, Holders>();

  constructor(options: CacheSpaceOptions) {
    this.#options = options;
  }

  /** @param isNew whether the commit was fetched for this work */
  hold(gitDir: string, { isNew }: { isNew: boolean }): CacheHold {
    // A commit that another new hold uses does not count as kept.
    const holders = this.#holders.get(gitDir) ?? { count: 0, isRetained: !isNew };
    this.#holders.set(gitDir, holders);
    holders.count += 1;
    let isOver = false;
    return {
      retain: () => (holders.isRetained = true),
      [Symbol.asyncDispose]: async () => {
        if (isOver) return;
        isOver = true;
        holders.count -= 1;
        if (holders.count > 0) return;
        this.#holders.delete(gitDir);
        if (!holders.isRetained) await rm(gitDir, { recursive: true, force: true });
      },
    };
  }

  /** Disk space of a user's commits; of all users without `uid`. */
  async usedBytes(uid?: number): Promise<number> {
    const entries = await this.#entries();
    return sumOf(uid === undefined ? entries : entries.filter((entry) => entry.uid === uid));
  }

  /** Removes commits beyond the limits, except held ones. */
  async freeSpace(): Promise<void> {
    const { bounds, now } = this.#options;
    await this.#removeUnknown();
    const entries = await this.#entries();
    const gone = new Set(entries.filter((entry) => entry.isTemporary && entry.usedMs < now() - leftoverMs));
    const staying = (): Entry[] => entries.filter((entry) => !gone.has(entry));
    for (const uid of new Set(entries.map((entry) => entry.uid))) {
      const own = staying().filter((entry) => entry.uid === uid);
      for (const entry of this.#entriesBeyond(own, bounds.maxBytesPerUser, maxCommitsPerUser))
        gone.add(entry);
    }
    for (const entry of this.#entriesBeyond(staying(), bounds.maxBytes, Infinity)) gone.add(entry);
    for (const { path } of gone) await rm(path, { recursive: true, force: true });
  }

  /** The entries beyond the limits, least recently used first. */
  #entriesBeyond(entries: readonly Entry[], maxBytes: number, maxCount: number): Entry[] {
    const gone: Entry[] = [];
    let bytes = sumOf(entries);
    for (const entry of entries.toSorted((a, b) => a.usedMs - b.usedMs)) {
      if (bytes <= maxBytes && entries.length - gone.length <= maxCount) break;
      if (entry.isTemporary || this.#holders.has(entry.path)) continue;
      gone.push(entry);
      bytes -= entry.sizeBytes;
    }
    return gone;
  }

  /** Removes entries of an earlier layout; they can be fetched again. */
  async #removeUnknown(): Promise<void> {
    const { directory } = this.#options;
    for (const name of await namesIn(directory)) {
      if (!isUid(name)) await rm(join(directory, name), { recursive: true, force: true });
    }
  }

  async #entries(): Promise<Entry[]> {
    const { directory } = this.#options;
    const users = (await namesIn(directory)).filter(isUid);
    const names = await mapBounded(users, readAtOnce, async (user) =>
      (await namesIn(join(directory, user))).map((name) => ({ uid: Number(user), name })),
    );
    const entries = await mapBounded(names.flat(), readAtOnce, async ({ uid, name }) => {
      const path = join(directory, String(uid), name);
      const isTemporary = !name.endsWith(commitEnding);
      const usedMs = await lstat(path).then(
        (stats) => stats.mtimeMs,
        () => undefined,
      );
      // The entry was just removed.
      if (usedMs === undefined) return [];
      const sizeBytes = isTemporary ? await allocatedBytes(path) : ((await readFacts(path))?.sizeBytes ?? 0);
      return [{ uid, path, sizeBytes, usedMs, isTemporary }];
    });
    return entries.flat();
  }
}

/** Allocated bytes of a daemon-owned directory and its contents. */
export async function allocatedBytes(path: string): Promise<number> {
  const names = await readdir(path, { recursive: true }).catch((): string[] => []);
  const sizes = await mapBounded(["", ...names], readAtOnce, (name) =>
    lstat(join(path, name)).then(
      ({ blocks }) => blocks * 512,
      () => 0,
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** Undefined if they cannot be read. */
export async function readFacts(gitDir: string): Promise<CommitFacts | undefined> {
  try {
    const facts: unknown = JSON.parse(await readFile(join(gitDir, factsFile), "utf8"));
    return areFacts(facts) ? facts : undefined;
  } catch {
    return undefined;
  }
}

function sumOf(entries: readonly Entry[]): number {
  return entries.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

function isUid(name: string): boolean {
  return /^\d{1,10}$/.test(name);
}

function namesIn(directory: string): Promise<string[]> {
  return readdir(directory).catch((): string[] => []);
}
