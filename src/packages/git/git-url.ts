/**
 * Parses URLs of git repositories by an allow-list: accepted URLs cannot be interpreted as an option or a git helper
 * (`ext::`), and cannot leak a secret into process lists or the store.
 */

/** Protocol of a repository. */
export type GitTransport = "https" | "http" | "ssh" | "file";

export interface GitUrl {
  transport: GitTransport;
  /** In git's form. */
  url: string;
  /** `file` only: the absolute path of the repository. */
  path?: string;
}

export type GitUrlResult = { gitUrl: GitUrl } | { problem: string };

const host = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])$/;
const userName = /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/;
const remotePath = /^[A-Za-z0-9._~/%+@,=:-]+$/;

/** Whether `text` looks like a URL or an scp-like address; it need not be valid. */
export function looksLikeGitUrl(text: string): boolean {
  return /^[A-Za-z][A-Za-z0-9+.-]*:/.test(text) || /^[^/]*:/.test(text);
}

/**
 * Parses `https://`, `http://`, `ssh://`, `file://`, `[user@]host:path` and `[user@host:port]:path`.
 */
export function parseGitUrl(text: string): GitUrlResult {
  if (/[\s\u0000-\u001f\u007f]/.test(text)) return { problem: "has white space or control characters" };
  if (text.length > 2048) return { problem: "is longer than 2048 characters" };
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(text)?.[1]?.toLowerCase();
  if (scheme === undefined) return parseScpLike(text);
  if (scheme === "file") return parseFileUrl(text);
  if (scheme === "https" || scheme === "http" || scheme === "ssh") return parseNetworkUrl(text, scheme);
  return { problem: `has the scheme "${scheme}"; https, ssh and file are supported` };
}

function parseNetworkUrl(text: string, transport: "https" | "http" | "ssh"): GitUrlResult {
  const parts = /^[A-Za-z]+:\/\/(?:([^@/]*)@)?(\[[^\]/]*\]|[^:/]*)(?::(\d{1,5}))?(\/.*)$/.exec(text);
  if (parts === null) return { problem: "is not scheme://host/path" };
  const [, user, name = "", port, path = ""] = parts;
  if (user !== undefined && transport !== "ssh") {
    return {
      problem:
        "contains credentials, which process lists would show; use an ssh URL with a key, or svc credential add",
    };
  }
  if (user?.includes(":"))
    return { problem: "contains a password, which process lists would show; use a key" };
  if (user !== undefined && !userName.test(user))
    return { problem: "has a username with characters that are not allowed" };
  if (!host.test(name)) return { problem: "has no valid host" };
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    return { problem: `has the port ${port}` };
  const problem = pathProblem(path);
  if (problem !== undefined) return { problem };
  const authority = `${user === undefined ? "" : `${user}@`}${name.toLowerCase()}${port === undefined ? "" : `:${port}`}`;
  return { gitUrl: { transport, url: `${transport}://${authority}${path}` } };
}

/** `[user@]host:path` as in ssh and scp; with a port, `[user@host:port]:path` as in git. */
function parseScpLike(text: string): GitUrlResult {
  const bracketed = /^\[(?:([^@:/[\]]+)@)?([^:/@[\]]+):(\d{1,5})\]:(.+)$/.exec(text);
  if (bracketed !== null) {
    const [, user, name = "", port = "", path = ""] = bracketed;
    const address = `${user === undefined ? "" : `${user}@`}${name}`;
    const result = parseNetworkUrl(`ssh://${address}:${port}/${path}`, "ssh");
    return "problem" in result
      ? result
      : { gitUrl: { transport: "ssh", url: `[${address}:${port}]:${path}` } };
  }
  const [, before = "", asPort = "", after = ""] = /^([^:/]+):(\d{1,5}):\/*(.+)$/.exec(text) ?? [];
  if (asPort !== "") {
    const address = before.replace(/[[\]]/g, "");
    return {
      problem: `is not user@host:path; for the port ${asPort} write ssh://${address}:${asPort}/${after}`,
    };
  }
  const parts = /^(?:([^@:/]+)@)?(\[[0-9A-Fa-f:.]+\]|[^:/@]+):(.+)$/.exec(text);
  if (parts === null) return { problem: "is not scheme://host/path or user@host:path" };
  const [, user, name = "", path = ""] = parts;
  const [, port, rest] = /^(\d{1,5})\/(.+)$/.exec(path) ?? [];
  if (port !== undefined && host.test(name)) {
    const address = `ssh://${user === undefined ? "" : `${user}@`}${name}`;
    return {
      problem: `is ambiguous: for the port ${port} write ${address}:${port}/${rest}; for the directory ${port} write ${address}/${path}`,
    };
  }
  if (user !== undefined && !userName.test(user))
    return { problem: "has a username with characters that are not allowed" };
  if (!host.test(name)) return { problem: "has no valid host" };
  const problem = text.replace(/\[[^\]]*\]/, "").includes("::")
    ? "names a helper program"
    : pathProblem(path);
  if (problem !== undefined) return { problem };
  return { gitUrl: { transport: "ssh", url: `${user === undefined ? "" : `${user}@`}${name}:${path}` } };
}

/** Resolves a submodule's URL, which may be relative to its repository's, as gitmodules(5) specifies. */
export function parseSubmoduleUrl(text: string, parent: GitUrl): GitUrlResult {
  if (!/^\.\.?(?:\/|$)/.test(text)) return parseGitUrl(text);
  const [, root = "", path = ""] =
    /^([A-Za-z]+:\/\/[^/]*\/|[^/]*:)(.*)$/.exec(parent.url.replace(/\/+$/, "")) ?? [];
  const names = path.split("/");
  for (const name of text.split("/")) {
    if (name === "..") {
      if (names.pop() === undefined) return { problem: "is above the host of its repository" };
    } else if (name !== "." && name !== "") names.push(name);
  }
  return parseGitUrl(`${root}${names.join("/")}`);
}

function parseFileUrl(text: string): GitUrlResult {
  const encoded = text.slice("file://".length);
  if (!encoded.startsWith("/")) return { problem: "must be file:/// with an absolute path" };
  let path: string;
  try {
    path = decodeURIComponent(encoded);
  } catch {
    return { problem: "has a malformed % escape" };
  }

  if (/[\u0000-\u001f\u007f]/.test(path)) return { problem: "has control characters" };
  if (path.split("/").includes("..")) return { problem: `has ".." in its path` };
  // `#` would start the branch and the directory.
  return { gitUrl: { transport: "file", url: `file://${encodeURI(path).replaceAll("#", "%23")}`, path } };
}

function pathProblem(path: string): string | undefined {
  if (!remotePath.test(path)) return "has a path with characters that are not allowed";
  if (/^\/?$/.test(path)) return "does not name a repository";
  if (path.startsWith("-") || path.startsWith("/-")) return "has a path that looks like an option";
  // `::` separates a helper program from its argument.
  if (path.includes("::")) return "names a helper program";
  return namesOnServer(path).includes("..") ? `has ".." in its path` : undefined;
}

/** The names of a path, as git for ssh and servers for https decode them: an escaped ".." would lead to another owner. */
function namesOnServer(path: string): string[] {
  const decoded = path.replaceAll(/%([0-9a-f]{2})/gi, (_, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
  return (decoded === path ? decoded : namesOnServer(decoded).join("/")).split(/[/\\]/);
}

/** Splits `URL#ref:dir`, as `docker build` does; absent parts are empty. */
export function splitFragment(spec: string): { url: string; ref: string; directory: string } {
  const [, url = spec, ref = "", directory = ""] = /^([^#]*)#([^:]*)(?::(.*))?$/.exec(spec) ?? [];
  return { url, ref, directory: directory.replaceAll(/^\/+|\/+$/g, "").replaceAll(/\/{2,}/g, "/") };
}

/** Whether a URL's host is this host. */
export function isLoopback(name: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(name);
}

/**
 * The address of a repository on this host: `directory`, or its protocol, host and port. Empty for other hosts. Host names
 * are not looked up.
 */
export function localAddressOf({ transport, url }: GitUrl): string {
  if (transport === "file") return "directory";
  const [address = ""] = url.replace(/^[a-z]+:\/\//, "").split("/", 1);
  // `[user@host:port]:path` without its brackets.
  const plain = address.replace(/^\[([^:\]]+:\d+)\]/, "$1").replace(/^[^@]*@/, "");
  const [, name = "", port = ""] = /^(\[[^\]]+\]|[^:]+)(?::(\d+))?/.exec(plain) ?? [];
  return isThisHost(name) ? `${transport} ${name} ${port}` : "";
}

/** First path names that all repositories of a server share, as on Bitbucket, Gerrit and Azure DevOps over ssh. */
const serverPrefixes: ReadonlySet<string> = new Set(["a", "git", "p", "r", "repos", "scm", "v3"]);

/**
 * Whether two repositories have the same host and owner. The owner is the first name of a path with several names, or the
 * first two if the first is a server's prefix.
 */
export function haveSameOwner(one: GitUrl, other: GitUrl): boolean {
  return ownerOf(one) === ownerOf(other);
}

function ownerOf({ transport, url }: GitUrl): string {
  if (transport === "file") return "directory";
  const [, bracketed, ofScheme, plain, path = ""] =
    /^(?:\[(?:[^@\]]*@)?([^\]]+:\d+)\]:|[a-z]+:\/\/(?:[^@/]*@)?([^/]+)\/|(?:[^@:/]*@)?(\[[^\]]+\]|[^:]+):)\/*(.*)$/.exec(
      url,
    ) ?? [];
  const names = path.split("/").filter((name) => name !== "");
  const ownerNames = names.length > 2 && serverPrefixes.has((names[0] ?? "").toLowerCase()) ? 2 : 1;
  const owner = names.slice(0, -1).slice(0, ownerNames).join("/");
  return `${(bracketed ?? ofScheme ?? plain ?? url).toLowerCase()}/${owner}`;
}

/** Whether a name or an address in any of its spellings, such as `127.1` and `[::ffff:7f00:1]`, leads to this host. */
function isThisHost(name: string): boolean {
  const { hostname = name.toLowerCase() } = URL.parse(`http://${name}`) ?? {};
  return (
    /^(?:(?:.+\.)?localhost(?:\.localdomain)?|ip6-(?:localhost|loopback))$/.test(hostname) ||
    /^(?:127|0)(?:\.\d+){3}$/.test(hostname) ||
    /^\[::(?:1|(?:ffff:)?(?:7f[0-9a-f]{2}|0):[0-9a-f]{1,4})?\]$/.test(hostname)
  );
}

/** Replaces possible secrets in `text` (user and password, query), for messages and logs. */
export function redactUrls(text: string): string {
  return text
    .replaceAll(/([A-Za-z][A-Za-z0-9+.-]*:\/\/)[^\s/'"]*@/g, "$1***@")
    .replaceAll(/([A-Za-z][A-Za-z0-9+.-]*:\/\/[^\s?'"]*)\?[^\s'"]*/g, "$1?***");
}
