/**
 * URLs of git repositories, by an allow-list: what svc accepts can neither be taken for an option, name a helper
 * program of git (`ext::`), nor carry a secret into process lists and the store (T35, T9).
 */

/** How a repository is reached. */
export type GitTransport = "https" | "http" | "ssh" | "file";

export interface GitUrl {
  transport: GitTransport;
  /** As git takes it. */
  url: string;
  /** `file` only: the absolute path of the repository. */
  path?: string;
}

export type GitUrlResult = { gitUrl: GitUrl } | { problem: string };

const host = /^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])$/;
const userName = /^[A-Za-z0-9_][A-Za-z0-9_.-]*$/;
const remotePath = /^[A-Za-z0-9._~/%+@,=:-]+$/;

/** Whether `text` looks like a URL or an scp-like address at all; whether it is a good one is another matter. */
export function looksLikeGitUrl(text: string): boolean {
  return /^[A-Za-z][A-Za-z0-9+.-]*:/.test(text) || /^[^/]*:/.test(text);
}

/** Reads `https://`, `ssh://`, `file://`, `[user@]host:path`, and `http://` for this machine alone. */
export function parseGitUrl(text: string): GitUrlResult {
  if (/[\s\u0000-\u001f\u007f]/.test(text)) return { problem: "has white space or control characters" };
  if (text.length > 2048) return { problem: "is longer than 2048 characters" };
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(text)?.[1]?.toLowerCase();
  if (scheme === undefined) return parseScpLike(text);
  if (scheme === "file") return parseFileUrl(text);
  if (scheme === "https" || scheme === "http" || scheme === "ssh") return parseNetworkUrl(text, scheme);
  return { problem: `has the scheme "${scheme}"; https, ssh and file are understood` };
}

function parseNetworkUrl(text: string, transport: "https" | "http" | "ssh"): GitUrlResult {
  const parts = /^[A-Za-z]+:\/\/(?:([^@/]*)@)?(\[[^\]/]*\]|[^:/]*)(?::(\d{1,5}))?(\/.*)$/.exec(text);
  if (parts === null) return { problem: "is not scheme://host/path" };
  const [, user, name = "", port, path = ""] = parts;
  if (user !== undefined && transport !== "ssh") {
    return {
      problem: "carries credentials, which process lists would show: use an ssh URL with a key instead",
    };
  }
  if (user?.includes(":"))
    return { problem: "carries a password, which process lists would show: use a key" };
  if (user !== undefined && !userName.test(user)) return { problem: "has a user name with odd characters" };
  if (!host.test(name)) return { problem: "has no valid host" };
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    return { problem: `has the port ${port}` };
  const problem = pathProblem(path);
  if (problem !== undefined) return { problem };
  if (transport === "http" && !isLoopback(name)) {
    return {
      problem: "is http://, which anyone on the way can change: use https (http is for this machine alone)",
    };
  }
  const authority = `${user === undefined ? "" : `${user}@`}${name.toLowerCase()}${port === undefined ? "" : `:${port}`}`;
  return { gitUrl: { transport, url: `${transport}://${authority}${path}` } };
}

/** `[user@]host:path` as ssh and scp have it. */
function parseScpLike(text: string): GitUrlResult {
  const parts = /^(?:([^@:/]+)@)?([^:/@]+):(.+)$/.exec(text);
  if (parts === null) return { problem: "is not scheme://host/path or user@host:path" };
  const [, user, name = "", path = ""] = parts;
  if (user !== undefined && !userName.test(user)) return { problem: "has a user name with odd characters" };
  if (!host.test(name)) return { problem: "has no valid host" };
  const problem = text.includes("::") ? "names a helper program" : pathProblem(path);
  if (problem !== undefined) return { problem };
  return { gitUrl: { transport: "ssh", url: `${user === undefined ? "" : `${user}@`}${name}:${path}` } };
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
  return { gitUrl: { transport: "file", url: `file://${encodeURI(path)}`, path } };
}

function pathProblem(path: string): string | undefined {
  if (!remotePath.test(path)) return "has characters that no repository path needs";
  if (/^\/?$/.test(path)) return "names no repository";
  if (path.startsWith("-") || path.startsWith("/-")) return "has a path that looks like an option";
  // `::` separates a helper program from its argument.
  if (path.includes("::")) return "names a helper program";
  return path.split("/").includes("..") ? `has ".." in its path` : undefined;
}

/** Whether a host of a URL is this machine. */
export function isLoopback(name: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(name);
}

/** `text` with what may be a secret in it (user and password, query) replaced, for messages and logs. */
export function redactUrls(text: string): string {
  return text
    .replaceAll(/([A-Za-z][A-Za-z0-9+.-]*:\/\/)[^@\s/'"]*@/g, "$1***@")
    .replaceAll(/([A-Za-z][A-Za-z0-9+.-]*:\/\/[^\s?'"]*)\?[^\s'"]*/g, "$1?***");
}
