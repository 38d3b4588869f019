/**
 * How svc calls git: with arguments, configuration and environment that execute nothing a repository contains, never
 * prompt for a password, and allow only the protocol in the URL. Kernel limits apply, because a server's data
 * determines how much memory git uses.
 */
import { dirname } from "node:path";
import type { GitTransport, GitUrl } from "./git-url.ts";

export interface GitCommand {
  argv: string[];
  env: Record<string, string>;
}

export interface GitEnvironment {
  /** Where `git` is searched. Default: the usual system directories. */
  searchPath?: string;
  /** Variables of the daemon that are passed to git, such as proxies and certificate files. */
  extraEnv?: Readonly<Record<string, string>>;
}

/** The environment and limits of git. */
export interface GitSurroundings extends GitEnvironment {
  /** Address space of git and of each of its helpers. */
  maxMemoryBytes: number;
  /** Largest file that it may write. */
  maxFileBytes: number;
}

/** CPU time of git and of each of its helpers. */
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
  // Always store packs, which are written, checked and synced as one file.
  "fetch.unpackLimit=1",
  "gc.auto=0",
  "maintenance.auto=false",
  // Process larger files in pieces instead of loading them completely.
  "core.bigFileThreshold=1m",
  // Mapped files count as address space.
  "core.packedGitWindowSize=16m",
  "core.packedGitLimit=128m",
  "core.deltaBaseCacheLimit=16m",
  "pack.threads=1",
  "pack.windowMemory=64m",
  "http.lowSpeedLimit=1000",
  "http.lowSpeedTime=30",
];

/** Protocols that git may use for a URL; they also apply to redirects. */
const protocols: Readonly<Record<GitTransport, string>> = {
  https: "https",
  http: "http",
  // Git itself connects to nothing; see ssh-connection.ts.
  ssh: "fd",
  file: "file",
};

/** A username and secret for one host. */
export interface GitLogin {
  username: string;
  secret: string;
}

/**
 * A call of git; `transport` is omitted for work on local objects. Redirects of an http server, which any user can
 * start, are not followed: git runs as root, and would send requests to any address.
 */
export function gitCommand(
  args: readonly string[],
  environment: GitSurroundings,
  transport?: GitTransport,
): GitCommand {
  const settings =
    transport === "file"
      ? configuration.filter((line) => !line.startsWith("protocol.file."))
      : [...configuration, ...(transport === "http" ? ["http.followRedirects=false"] : [])];
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
      GIT_OPTIONAL_LOCKS: "0",
      GIT_NO_LAZY_FETCH: "1",
      GIT_LFS_SKIP_SMUDGE: "1",
    },
  };
}

/** Wraps a command in limits, which its child processes inherit. */
function limited({ maxMemoryBytes, maxFileBytes }: GitSurroundings): string[] {
  return [
    "prlimit",
    ...[`--as=${maxMemoryBytes}`, `--fsize=${maxFileBytes}`, `--cpu=${maxProcessorSecs}`, "--core=0", "--"],
  ];
}

/**
 * A call of git in a user's repository, to be run as the caller. Git discovers the repository itself, at `path` and
 * not above, because only then does it reject one that belongs to another user.
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
 * The environment for a remote repository. It passes the login for the URL's host, which process lists then do not show,
 * and whether certificates are verified. With either setting git follows no redirects, because it would send the login
 * to their target, or not verify the target's certificate.
 */
export function remoteEnvironment(
  { url }: GitUrl,
  { login, isInsecure }: { readonly login?: GitLogin | undefined; readonly isInsecure: boolean },
): Record<string, string> {
  const settings: [key: string, value: string][] = [];
  if (login !== undefined) {
    const basic = Buffer.from(`${login.username}:${login.secret}`).toString("base64");
    settings.push([`http.${new URL(url).origin}/.extraHeader`, `Authorization: Basic ${basic}`]);
  }
  if (isInsecure) settings.push(["http.sslVerify", "false"]);
  if (settings.length === 0) return {};
  settings.push(["http.followRedirects", "false"]);
  return Object.fromEntries([
    ["GIT_CONFIG_COUNT", String(settings.length)],
    ...settings.flatMap(([key, value], at) => [
      [`GIT_CONFIG_KEY_${at}`, key],
      [`GIT_CONFIG_VALUE_${at}`, value],
    ]),
  ]) as Record<string, string>;
}

/** The address that git gets. For ssh, a connected socket as descriptor 3; see git-remote-fd(1). */
export function addressFor({ transport, url }: GitUrl): string {
  return transport === "ssh" ? "fd::3" : url;
}

/** Arguments of `ls-remote` that list everything that can be a version. */
export function listRefsArgs(gitUrl: GitUrl): string[] {
  return ["ls-remote", "--symref", "--", addressFor(gitUrl), "HEAD", "refs/heads/*", "refs/tags/*"];
}
