/** What git says when it fails, as an error that says what to do. */
import { SvcError } from "../errors.ts";
import { redactUrls } from "./git-url.ts";

/** How git ended. */
export interface GitEnd {
  exitCode: number | null;
  signal: string | null;
}

/** `prlimit`'s, when there is no program of that name. */
const notFoundExitCode = 127;

/** What git says when a limit of the kernel met it or one of its helpers, and which limit that was. */
const limits: readonly (readonly [RegExp, what: string])[] = [
  [/[Oo]ut of memory|Cannot allocate memory|allocation failed/, "takes more memory than git may have"],
  [/died of signal 25\b|File too large|^SIGXFSZ$/m, "is larger than allowed"],
  [/died of signal 24\b|^SIGXCPU$/m, "takes more processor time than git may have"],
];

/** What git says of a server that is not there or does not answer. */
const unreachable =
  /Could not resolve host|[Ff]ailed to connect|Couldn't connect|Connection (refused|reset|timed out|closed)|[Nn]etwork is unreachable|No route to host|Operation timed out|returned error: 5\d\d|early EOF|hung up/;

/** The error for a git that ended with these lines on standard error. */
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
    const message = `${name} belongs to another user: only its owner may install from it as a repository; as a directory, without file://, whoever can read it may`;
    return new SvcError("denied", message, { cause });
  }
  if (/Host key verification failed/.test(text)) {
    return fail(`the host of ${name} is not known: add its key to the daemon's known_hosts`);
  }
  if (
    /could not read (Username|Password)|Authentication failed|Permission denied \(|HTTP Basic|returned error: 40[13]/.test(
      text,
    )
  ) {
    return fail(
      `${name} asks for other credentials than yours, or does not exist; give some with "svc credential add"`,
    );
  }
  if (
    /not appear to be a git repository|[Rr]epository (.* )?not found|not a git repository|returned error: 404/.test(
      text,
    )
  ) {
    return fail(`there is no git repository at ${name}`);
  }
  if (/fsck error|unpack-objects|index-pack (failed|died)|bad object|corrupt/.test(text)) {
    return fail(`${name} sent objects that are not sound: ${lastLine(stderr)}`);
  }
  const message = `git failed with ${name}: ${lastLine(stderr)}`;
  return new SvcError(unreachable.test(text) ? "unavailable" : "git_failed", message, { cause });
}

function lastLine(stderr: readonly string[]): string {
  const ofSsh = stderr.find((line) => line.startsWith("ssh: "));
  const telling =
    ofSsh ?? stderr.findLast((line) => /^(fatal|error): /.test(line)) ?? stderr.at(-1) ?? "no message";
  return redactUrls(telling.replace(/^(fatal|error): /, ""));
}
