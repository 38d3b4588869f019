/** Converts git's errors to errors with a remedy. */
import { SvcError } from "../../errors.ts";
import { isArchiveFile } from "../../lib/archive-file.ts";
import { redactUrls } from "./git-url.ts";
import { settingFor } from "./insecure-hosts.ts";

/** How git exited. */
export interface GitEnd {
  exitCode: number | null;
  signal: string | null;
}

/** Exit code of `prlimit` for a missing program. */
const notFoundExitCode = 127;

/** Output of git or a helper that hit a kernel limit, with the limit. */
const limits: readonly (readonly [RegExp, what: string])[] = [
  [/[Oo]ut of memory|Cannot allocate memory|allocation failed/, "needs more memory than the limit for git"],
  [/died of signal 25\b|File too large|^SIGXFSZ$/m, "is larger than allowed"],
  [/died of signal 24\b|^SIGXCPU$/m, "needs more CPU time than the limit for git"],
];

/** Output of git if a server is missing or does not respond. */
const unreachable =
  /Could not resolve host|[Ff]ailed to connect|Couldn't connect|Connection (refused|reset|timed out|closed)|[Nn]etwork is unreachable|No route to host|Operation timed out|returned error: 5\d\d|early EOF|hung up/;

/** The error for a git process with these lines on standard error. */
export function gitFailure(
  subject: string,
  stderr: readonly string[],
  { exitCode, signal }: GitEnd,
): SvcError<"git_failed" | "denied" | "unavailable"> {
  const text = redactUrls(stderr.join("\n"));
  const cause = new Error(text);
  const name = redactUrls(subject);
  const fail = (message: string) => new SvcError("git_failed", message, { cause });
  if (exitCode === notFoundExitCode && text.startsWith("prlimit:")) {
    return fail("git is not installed on this host");
  }
  const met = limits.find(([pattern]) => pattern.test(`${text}\n${signal ?? ""}`));
  if (met !== undefined) return fail(`${name} ${met[1]}`);
  if (/dubious ownership|unsafe repository/.test(text)) {
    const message = `${name} belongs to another user, so only its owner can install from it as a repository; to install it as a directory, leave out file://`;
    return new SvcError("denied", message, { cause });
  }
  if (/Host key verification failed/.test(text)) {
    return fail(
      `the host key of ${name} is unknown or has changed; log in once with ssh to check it and to add it to your ~/.ssh/known_hosts`,
    );
  }
  if (/Permission denied \((?:.*,)?publickey/.test(text)) {
    const fix = "use a key in ~/.ssh without a passphrase, or https with: svc credential add";
    return fail(`the server of ${name} accepts none of your ssh keys; ${fix}`);
  }
  if (
    /could not read (Username|Password)|Authentication failed|Permission denied \(|HTTP Basic|returned error: 40[13]/.test(
      text,
    )
  ) {
    return fail(
      `${name} requires other credentials than yours, or does not exist${adviceOnRef(name) || "; add credentials with: svc credential add"}`,
    );
  }
  if (
    /not appear to be a git repository|[Rr]epository (.* )?not found|not a git repository|returned error: 404/.test(
      text,
    )
  ) {
    return fail(`there is no git repository at ${name}${adviceOnRef(name)}`);
  }
  if (/not our ref|unadvertised object|Needed a single revision/.test(text)) {
    return fail(`${name} does not have the commit, or its server only sends branches and tags`);
  }
  if (
    /SSL certificate problem|certificate verif\w+ failed|certificate subject name|no alternative certificate/.test(
      text,
    )
  ) {
    const fix = URL.canParse(subject)
      ? `; add its CA to the host's certificates, or ${settingFor(subject)}`
      : "";
    return fail(`the certificate of ${name} is not trusted${fix}`);
  }
  if (/fsck error|unpack-objects|index-pack (failed|died)|bad object|corrupt/.test(text)) {
    return fail(`${name} sent corrupt objects: ${lastLine(stderr)}`);
  }
  const fix = /Could not resolve host/.test(text) ? "; check the address and the network" : adviceOnRef(name);
  const message = `git cannot read ${name}: ${lastLine(stderr)}${fix}`;
  return new SvcError(unreachable.test(text) ? "unavailable" : "git_failed", message, { cause });
}

/** Address of a directory in a browser: of GitHub, GitLab, Gitea and Forgejo. */
const browsed = /^(https?:\/\/.+?)(?:\/-)?\/(?:tree|src\/(?:branch|tag))\/([^/]+)(?:\/(.+?))?\/?$/;

/** For a URL with the `@tag` of a package ID, of a file, and for the address of a directory in a browser. */
function adviceOnRef(url: string): string {
  if (/\.ya?ml$/.test(url)) return "; for a compose file, download it, and run: svc install ./FILE";
  if (isArchiveFile(url)) return "; for an archive, unpack it, and run: svc install ./DIR";
  const [, shown, branch, directory] = browsed.exec(url) ?? [];
  if (shown !== undefined)
    return `; for this directory of the repository: ${shown}#${branch}${directory === undefined ? "" : `:${directory}`}`;
  const [, repository, ref] = /^(.*\/[^/@]+)@([^/@]+)$/.exec(url) ?? [];
  return repository === undefined ? "" : `; for a tag or a branch: ${repository}#${ref}`;
}

function lastLine(stderr: readonly string[]): string {
  const ofSsh = stderr.find((line) => line.startsWith("ssh: "));
  const telling =
    ofSsh ?? stderr.findLast((line) => /^(fatal|error): /.test(line)) ?? stderr.at(-1) ?? "no message";
  const text = redactUrls(telling.replace(/^(fatal|error): /, ""));
  // The server can send escape sequences for a terminal.
  return text.replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, " ").trim();
}
