/**
 * Asking a repository for its refs and bringing one commit of it into a bare repository of the daemon's own.
 * Remote repositories are spoken to by the daemon; those on this host are read with the identity of whoever asks,
 * so that nobody installs what they could not read (T52), and git's check of the repository's owner applies.
 */
import { createReadStream, createWriteStream } from "node:fs";
import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { SvcError } from "../errors.ts";
import type { Identity } from "../identity/identity.ts";
import type { RunCommandOptions } from "../identity/identity-work.ts";
import type { Identities } from "../identity/identities.ts";
import { byteLimit } from "../lib/byte-limit.ts";
import {
  listRefsArgs,
  localGitCommand,
  loginEnvironment,
  type GitLogin,
  type GitSurroundings,
} from "./git-command.ts";
import { gitFailure } from "./git-failure.ts";
import type { GitProcess, GitRunOptions } from "./git-process.ts";
import { readRefs, type RemoteRefs, type Revision } from "./git-refs.ts";
import type { GitUrl } from "./git-url.ts";

export interface GitLimits {
  /** Milliseconds for a list of refs. */
  listTimeoutMs: number;
  /** Milliseconds for a fetch or an export. */
  fetchTimeoutMs: number;
  /** A commit with its files may bring this many bytes of packs. */
  maxFetchBytes: number;
  /** The files of a commit, as a tar, are at most this long. */
  maxExportBytes: number;
  /** They are at most so many, directories included: a small tree may name itself over and over. */
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

/** Some 35,000 refs. */
const maxRefsBytes = 2 * 2 ** 20;

/** A repository that somebody wants a version of. */
export interface GitRemote {
  readonly gitUrl: GitUrl;
  listRefs: (signal?: AbortSignal) => Promise<RemoteRefs>;
  /**
   * Brings the files of a revision into the bare repository `gitDir`, without history.
   * Answers the commit (a branch may have moved since it was listed) and its tree.
   */
  fetch: (revision: Revision, gitDir: string, options: FetchOptions) => Promise<FetchedCommit>;
}

export interface FetchedCommit {
  commit: string;
  tree: string;
}

/** A repository reached over https, ssh, or http on this machine. */
export function networkRemote(
  gitUrl: GitUrl,
  git: GitProcess,
  limits: GitLimits,
  login: GitLogin | undefined,
): GitRemote {
  const subject = gitUrl.url;
  const env = login === undefined ? {} : loginEnvironment(gitUrl, login);
  return {
    gitUrl,
    async listRefs(signal) {
      const output = await git.run(listRefsArgs(gitUrl), {
        subject,
        transport: gitUrl.transport,
        env,
        timeoutMs: limits.listTimeoutMs,
        maxOutputBytes: maxRefsBytes,
        signal,
      });
      return readRefs(output.toString());
    },
    async fetch(revision, gitDir, options) {
      const name = revision.tag === "" ? `refs/heads/${revision.branch}` : `refs/tags/${revision.tag}`;
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
              ...[...depth, "--", gitUrl.url, `+${name}:refs/svc/head`],
            ],
            {
              ...options,
              subject,
              transport: gitUrl.transport,
              env,
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

/** A plain file server cannot cut history off. */
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

/** Runs a fetch and cancels it when the packs in `gitDir` reach `maxBytes`; git itself bounds single files only. */
async function watchSize<T>(
  gitDir: string,
  maxBytes: number,
  subject: string,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const tooLarge = new AbortController();
  const watch = async (): Promise<void> => {
    // A single file ends at the bound: git cannot write more of it.
    if ((await sizeOfPacks(gitDir)) >= maxBytes) tooLarge.abort();
  };
  const timer = setInterval(() => void watch(), 250);
  try {
    const result = await work(signal ? AbortSignal.any([signal, tooLarge.signal]) : tooLarge.signal);
    await watch();
    if (!tooLarge.signal.aborted) return result;
  } catch (error) {
    await watch();
    if (!tooLarge.signal.aborted) throw error;
  } finally {
    clearInterval(timer);
  }
  throw tooLargeError(subject, maxBytes);
}

function tooMuchSaid(subject: string): SvcError<"git_failed"> {
  return new SvcError("git_failed", `git says too much about ${subject}`);
}

function tooLargeError(subject: string, maxBytes: number): SvcError<"git_failed"> {
  return new SvcError("git_failed", `${subject} is larger than the ${maxBytes} bytes allowed`);
}

async function sizeOfPacks(gitDir: string): Promise<number> {
  const directory = join(gitDir, "objects", "pack");
  const names = await readdir(directory).catch((): string[] => []);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(directory, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

export interface LocalRemoteOptions {
  git: GitProcess;
  environment: GitSurroundings;
  identities: Identities;
  /** Who asks. */
  uid: number;
  limits: GitLimits;
}

/** A repository on this host (`file://`), read with the identity of `uid`. */
export function localRemote(gitUrl: GitUrl & { path: string }, options: LocalRemoteOptions): GitRemote {
  const { git, environment, identities, uid, limits } = options;
  const subject = gitUrl.url;
  const { path } = gitUrl;

  async function runAsCaller(
    identity: Identity,
    args: readonly string[],
    run: RunCommandOptions,
  ): Promise<string> {
    const { argv, env } = localGitCommand(path, args, environment);
    const result = await identity.runCommand(argv, { ...run, cwd: "/", env });
    if (result.exitCode !== 0) throw gitFailure(subject, result.stderr.split("\n").filter(Boolean), result);
    if (result.truncated) throw tooMuchSaid(subject);
    return result.stdout;
  }

  /** All objects of a tree, packed by the caller and written by the daemon. */
  async function writePack(
    identity: Identity,
    tree: string,
    file: string,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const pack = byteLimit(limits.maxFetchBytes, () => tooLargeError(subject, limits.maxFetchBytes));
    // When one side fails, the other has nothing to wait for.
    const failed = new AbortController();
    const sent = runAsCaller(identity, ["pack-objects", "--stdout", "-q", "--revs"], {
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
      const identity = await identities.as(uid);
      const run = { timeoutMs: limits.listTimeoutMs, maxOutputBytes: maxRefsBytes, signal };
      const head = await runAsCaller(identity, ["rev-parse", "--symbolic-full-name", "HEAD"], run).catch(
        (error: unknown) => {
          // A HEAD that points to no commit yet is no reason to refuse its tags.
          if (error instanceof SvcError && error.reason === "git_failed") return "";
          throw error;
        },
      );
      const refs = await runAsCaller(
        identity,
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
      const identity = await identities.as(uid);
      const run = { timeoutMs: limits.fetchTimeoutMs, signal };
      const tree = (
        await runAsCaller(identity, ["rev-parse", "--verify", `${revision.commit}^{tree}`], run)
      ).trim();
      const file = join(gitDir, "incoming.pack");
      await writePack(identity, tree, file, signal);
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
