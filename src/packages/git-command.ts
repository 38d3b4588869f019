/**
 * How svc calls git: with arguments, configuration and environment under which nothing that a repository says is
 * run, nobody is asked for a password, only the one protocol that the URL names is spoken (T35, T50), and with limits
 * of the kernel, as what a server sends decides how much it takes (T58).
 */
import { dirname } from "node:path";
import type { GitTransport, GitUrl } from "./git-url.ts";

export interface GitCommand {
  argv: string[];
  env: Record<string, string>;
}

export interface GitEnvironment {
  /** Where `git` and `ssh` are found. Default: the usual system directories. */
  searchPath?: string;
  /** Passed to git as they are: proxies and certificate files of the daemon, say. */
  extraEnv?: Readonly<Record<string, string>>;
}

/** What git is run in. */
export interface GitSurroundings extends GitEnvironment {
  /** Address space of git and of each of its helpers. */
  maxMemoryBytes: number;
  /** The longest file that it may write. */
  maxFileBytes: number;
}

/** Processor time of git and of each of its helpers. */
const maxProcessorSecs = 600;

const configuration: readonly string[] = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.attributesFile=/dev/null",
  "core.askPass=",
  "credential.helper=",
  "protocol.ext.allow=never",
  "protocol.file.allow=never",
  "protocol.git.allow=never",
  "transfer.fsckObjects=true",
  "fetch.recurseSubmodules=false",
  "submodule.recurse=false",
  // Packs, however small: they are written, checked and synced as one.
  "fetch.unpackLimit=1",
  "gc.auto=0",
  "maintenance.auto=false",
  // Larger files pass through in pieces instead of lying in memory whole.
  "core.bigFileThreshold=1m",
  // What is mapped counts as address space too.
  "core.packedGitWindowSize=16m",
  "core.packedGitLimit=128m",
  "core.deltaBaseCacheLimit=16m",
  "pack.threads=1",
  "pack.windowMemory=64m",
  "http.lowSpeedLimit=1000",
  "http.lowSpeedTime=30",
];

const ssh = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o PermitLocalCommand=no -o ClearAllForwardings=yes";

/** Protocols that git may speak for a URL; redirects obey it too. */
const protocols: Readonly<Record<GitTransport, string>> = {
  https: "https",
  http: "http:https",
  ssh: "ssh",
  file: "file",
};

/** A user name and password for one host. */
export interface GitLogin {
  username: string;
  secret: string;
}

/** A call of git; `transport` is left out for work on local objects alone. */
export function gitCommand(
  args: readonly string[],
  environment: GitSurroundings,
  transport?: GitTransport,
): GitCommand {
  const settings =
    transport === "file" ? configuration.filter((line) => !line.startsWith("protocol.file.")) : configuration;
  return {
    argv: [
      ...limited(environment),
      ...["git", "--no-pager", "--no-replace-objects"],
      ...settings.flatMap((line) => ["-c", line]),
      ...args,
    ],
    env: {
      PATH: environment.searchPath ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: "/nonexistent",
      LC_ALL: "C",
      ...environment.extraEnv,
      GIT_CONFIG_NOSYSTEM: "1",
      GIT_CONFIG_GLOBAL: "/dev/null",
      GIT_ATTR_NOSYSTEM: "1",
      GIT_ALLOW_PROTOCOL: transport === undefined ? "none" : protocols[transport],
      GIT_PROTOCOL_FROM_USER: "0",
      GIT_TERMINAL_PROMPT: "0",
      GIT_ASKPASS: "/bin/false",
      SSH_ASKPASS_REQUIRE: "never",
      GIT_SSH_COMMAND: ssh,
      GIT_SSH_VARIANT: "ssh",
      GIT_OPTIONAL_LOCKS: "0",
      GIT_NO_LAZY_FETCH: "1",
      GIT_LFS_SKIP_SMUDGE: "1",
    },
  };
}

/** The command that runs another one within limits, which all that it starts inherits. */
function limited({ maxMemoryBytes, maxFileBytes }: GitSurroundings): string[] {
  return [
    "prlimit",
    ...[`--as=${maxMemoryBytes}`, `--fsize=${maxFileBytes}`, `--cpu=${maxProcessorSecs}`, "--core=0", "--"],
  ];
}

/**
 * A call of git inside a repository of a user, to be run with the caller's identity. Git finds the repository by
 * itself, at `path` and not above it, because only then does it refuse one that belongs to somebody else.
 */
export function localGitCommand(
  path: string,
  args: readonly string[],
  environment: GitSurroundings,
): GitCommand {
  const { argv, env } = gitCommand(["-C", path, ...args], environment);
  return { argv, env: { ...env, GIT_CEILING_DIRECTORIES: dirname(path) } };
}

/**
 * The environment that makes git show a login to the host of a URL: neither process lists nor the command line show it.
 * Redirects are not followed, as git would show it to wherever they lead.
 */
export function loginEnvironment(gitUrl: GitUrl, { username, secret }: GitLogin): Record<string, string> {
  const basic = Buffer.from(`${username}:${secret}`).toString("base64");
  return {
    GIT_CONFIG_COUNT: "2",
    GIT_CONFIG_KEY_0: `http.${new URL(gitUrl.url).origin}/.extraHeader`,
    GIT_CONFIG_VALUE_0: `Authorization: Basic ${basic}`,
    GIT_CONFIG_KEY_1: "http.followRedirects",
    GIT_CONFIG_VALUE_1: "false",
  };
}

/** Which `ls-remote` shows all that a version can be. */
export function listRefsArgs(gitUrl: GitUrl): string[] {
  return ["ls-remote", "--symref", "--", gitUrl.url, "HEAD", "refs/heads/*", "refs/tags/*"];
}
