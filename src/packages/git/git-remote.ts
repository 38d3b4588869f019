/**
 * Lists a repository's refs and fetches one commit into a bare repository of the daemon. The daemon accesses repositories
 * by https and http. Those behind ssh and on this host are read as the caller, so that nobody installs what they cannot
 * read, and git's check of the repository's owner applies.
 */
import { createReadStream, createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { RunCommandOptions } from "../../run-as/user-helper-types.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { byteLimit } from "../../lib/byte-streams.ts";
import { allocatedBytes } from "./cache-space.ts";
import {
  addressFor,
  listRefsArgs,
  localGitCommand,
  remoteEnvironment,
  type GitLogin,
  type GitSurroundings,
} from "./git-command.ts";
import { gitFailure } from "./git-failure.ts";
import type { Connect, GitProcess, GitRunOptions } from "./git-process.ts";
import { readRefs, wholeCommit, type RemoteRefs, type Revision } from "./git-refs.ts";
import type { GitUrl } from "./git-url.ts";

export interface GitLimits {
  /** Timeout of listing refs, in milliseconds. */
  listTimeoutMs: number;
  /** Timeout of a fetch or an export, in milliseconds. */
  fetchTimeoutMs: number;
  /** Maximum disk space of the objects of a commit with its files. */
  maxFetchBytes: number;
  /** Maximum size of a commit's files as a tar archive. */
  maxExportBytes: number;
  /** Maximum number of entries, directories included: a small tree can contain itself repeatedly. */
  maxExportEntries: number;
  /** Address space of git and of each of its helpers. */
  maxMemoryBytes: number;
}

export const defaultGitLimits: GitLimits = {
  listTimeoutMs: 60_000,
  fetchTimeoutMs: 1_800_000,
  maxFetchBytes: 2 * 2 ** 30,
  maxExportBytes: 8 * 2 ** 30,
  maxExportEntries: 250_000,
  maxMemoryBytes: 512 * 2 ** 20,
};

export type FetchOptions = Pick<GitRunOptions, "signal" | "onStderrLine">;

const measureEveryMs = 250;
/** About 35,000 refs. */
const maxRefsBytes = 2 * 2 ** 20;

/** A repository to install from. */
export interface GitRemote {
  readonly gitUrl: GitUrl;
  listRefs: (signal?: AbortSignal) => Promise<RemoteRefs>;
  /**
   * Fetches the files of a revision into the bare repository `gitDir`, without history. Returns the commit, because a
   * branch may have moved, and its tree.
   */
  fetch: (revision: Revision, gitDir: string, options: FetchOptions) => Promise<FetchedCommit>;
}

export interface FetchedCommit {
  commit: string;
  tree: string;
}

/** A repository accessed by https, ssh or http. */
export function networkRemote(
  gitUrl: GitUrl,
  git: GitProcess,
  limits: GitLimits,
  access: {
    readonly login?: GitLogin | undefined;
    readonly isInsecure: boolean;
    readonly connect?: Connect | undefined;
  },
): GitRemote {
  const subject = gitUrl.url;
  const env = remoteEnvironment(gitUrl, access);
  const { connect } = access;
  return {
    gitUrl,
    async listRefs(signal) {
      const output = await git.run(listRefsArgs(gitUrl), {
        subject,
        transport: gitUrl.transport,
        ...{ env, connect },
        timeoutMs: limits.listTimeoutMs,
        maxOutputBytes: maxRefsBytes,
        signal,
      });
      return readRefs(output.toString());
    },
    async fetch(revision, gitDir, options) {
      const name = refNameOf(revision);
      const fetchRef = (depth: readonly string[]) =>
        watchSize(gitDir, limits.maxFetchBytes, subject, options.signal, (signal) =>
          git.run(
            [
              ...[
                "-C",
                gitDir,
                "fetch",
                "--progress",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-maintenance",
              ],
              ...[...depth, "--", addressFor(gitUrl), `+${name}:refs/svc/head`],
            ],
            {
              ...options,
              subject,
              transport: gitUrl.transport,
              ...{ env, connect },
              timeoutMs: limits.fetchTimeoutMs,
              signal,
            },
          ),
        );
      try {
        await fetchRef(["--depth=1"]);
      } catch (error) {
        if (!isDumbHttp(error)) throw error;
        await fetchRef([]);
      }
      return resolveHead(git, gitDir, subject, options.signal);
    },
  };
}

/** The ref to fetch: the tag or branch, else the commit. */
function refNameOf({ branch, tag, commit }: Revision): string {
  if (tag !== "") return `refs/tags/${tag}`;
  return branch === "" ? commit : `refs/heads/${branch}`;
}

/** A plain file server does not support shallow fetches. */
function isDumbHttp(error: unknown): boolean {
  return (
    error instanceof SvcError && /dumb http transport does not support shallow/.test(String(error.cause))
  );
}

async function resolveHead(
  git: GitProcess,
  gitDir: string,
  subject: string,
  signal: AbortSignal | undefined,
): Promise<FetchedCommit> {
  const output = await git.run(
    ["-C", gitDir, "rev-parse", "refs/svc/head^{commit}", "refs/svc/head^{tree}"],
    { subject, timeoutMs: 30_000, signal },
  );
  const [commit = "", tree = ""] = output.toString().trim().split("\n");
  return { commit, tree };
}

/**
 * Runs a fetch and cancels it when `gitDir` reaches `maxBytes`: git itself only limits single files. A plain file server
 * sends single objects besides packs.
 */
async function watchSize<T>(
  gitDir: string,
  maxBytes: number,
  subject: string,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const tooLarge = new AbortController();
  const finished = new AbortController();
  const measure = async (): Promise<void> => {
    // A single file stops at the limit, because git cannot write more.
    if ((await allocatedBytes(join(gitDir, "objects"))) >= maxBytes) tooLarge.abort();
  };
  const watch = async (): Promise<void> => {
    while (!tooLarge.signal.aborted) {
      const startMs = performance.now();
      await measure();
      // Measuring many objects takes at most a tenth of the time.
      const pauseMs = Math.max(measureEveryMs, 10 * (performance.now() - startMs));
      await sleep(pauseMs, undefined, { signal: finished.signal });
    }
  };
  const watching = watch().catch(() => undefined);
  try {
    const result = await work(signal ? AbortSignal.any([signal, tooLarge.signal]) : tooLarge.signal);
    await measure();
    if (!tooLarge.signal.aborted) return result;
  } catch (error) {
    await measure();
    if (!tooLarge.signal.aborted) throw error;
  } finally {
    finished.abort();
    await watching;
  }
  throw tooLargeError(subject, maxBytes);
}

function outputTooLarge(subject: string): SvcError<"git_failed"> {
  return new SvcError("git_failed", `the ref list of ${subject} is too large (limit ${maxRefsBytes} bytes)`);
}

function tooLargeError(subject: string, maxBytes: number): SvcError<"git_failed"> {
  return new SvcError("git_failed", `${subject} is too large (limit ${maxBytes} bytes)`);
}

export interface LocalRemoteOptions {
  git: GitProcess;
  environment: GitSurroundings;
  userHelpers: UserHelpers;
  /** Uid of the caller. */
  uid: number;
  limits: GitLimits;
}

/** A repository on this host (`file://`), read as `uid`. */
export function localRemote(gitUrl: GitUrl & { path: string }, options: LocalRemoteOptions): GitRemote {
  const { git, environment, userHelpers, uid, limits } = options;
  const subject = gitUrl.url;
  const { path } = gitUrl;

  async function runAsCaller(
    userHelper: UserHelper,
    args: readonly string[],
    run: RunCommandOptions,
  ): Promise<string> {
    const { argv, env } = localGitCommand(path, args, environment);
    const result = await userHelper.runCommand(argv, { ...run, cwd: "/", env });
    if (result.exitCode !== 0) throw gitFailure(subject, result.stderr.split("\n").filter(Boolean), result);
    if (result.truncated) throw outputTooLarge(subject);
    return result.stdout;
  }

  /** Packs all objects of a tree: the caller reads, the daemon writes. */
  async function writePack(
    userHelper: UserHelper,
    tree: string,
    file: string,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const pack = byteLimit(limits.maxFetchBytes, () => tooLargeError(subject, limits.maxFetchBytes));
    // If one side fails, the other is canceled.
    const failed = new AbortController();
    const sent = runAsCaller(userHelper, ["pack-objects", "--stdout", "-q", "--revs"], {
      timeoutMs: limits.fetchTimeoutMs,
      signal: signal ? AbortSignal.any([signal, failed.signal]) : failed.signal,
      stdin: Buffer.from(`${tree}\n`),
      stdout: pack,
    }).then(() => pack.end());
    const written = pipeline(pack, createWriteStream(file, { mode: 0o600 }));
    try {
      await Promise.all([sent, written]);
    } catch (error) {
      failed.abort();
      pack.destroy();
      await Promise.allSettled([sent, written]);
      throw error;
    }
  }

  return {
    gitUrl,
    async listRefs(signal) {
      const userHelper = await userHelpers.as(uid);
      const run = { timeoutMs: limits.listTimeoutMs, maxOutputBytes: maxRefsBytes, signal };
      const head = await runAsCaller(userHelper, ["rev-parse", "--symbolic-full-name", "HEAD"], run).catch(
        (error: unknown) => {
          // A HEAD without a commit does not make the tags unusable.
          if (error instanceof SvcError && error.reason === "git_failed") return "";
          throw error;
        },
      );
      const refs = await runAsCaller(
        userHelper,
        [
          "for-each-ref",
          "--format=%(objectname)\t%(refname)%0a%(if)%(*objectname)%(then)%(*objectname)\t%(refname)^{}%(end)",
          "refs/heads/",
          "refs/tags/",
        ],
        run,
      );
      return readRefs(`ref: ${head.trim()}\tHEAD\n${refs}`);
    },
    async fetch(revision, gitDir, { signal }) {
      const userHelper = await userHelpers.as(uid);
      const run = { timeoutMs: limits.fetchTimeoutMs, signal };
      const tree = (
        await runAsCaller(userHelper, ["rev-parse", "--verify", `${revision.commit}^{tree}`], run)
      ).trim();
      // The caller's process controls this output, and root's git could read it as an option.
      if (!wholeCommit.test(tree))
        throw new SvcError("git_failed", `the tree of ${subject} is not an object ID`);
      const file = join(gitDir, "incoming.pack");
      await writePack(userHelper, tree, file, signal);
      await git.run(["-C", gitDir, "index-pack", "--stdin", "--strict"], {
        ...run,
        subject,
        stdin: createReadStream(file),
      });
      await rm(file);
      return { commit: revision.commit, tree };
    },
  };
}
