/**
 * Connections of git over ssh. ssh runs as the user, with this user's keys, configuration and known hosts, because an
 * ssh configuration names programs. Git runs as the daemon on its cache, starts no ssh, and has only a socket to it.
 */
import { SvcError } from "../../errors.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import type { Connect } from "./git-process.ts";

/** ClearAllForwardings does not affect the agent and X11, which ssh_config(5) could forward to the server. */
const options: readonly string[] = [
  "BatchMode=yes",
  "ConnectTimeout=20",
  "PermitLocalCommand=no",
  "ClearAllForwardings=yes",
  "ForwardAgent=no",
  "ForwardX11=no",
  // A connection that ssh keeps in the background would be killed with this one.
  "ControlMaster=no",
  "SendEnv=GIT_PROTOCOL",
];

/**
 * The arguments of ssh for a URL, as git itself would call it; see "GIT URLS" in git-fetch(1).
 * @param url accepted by `parseGitUrl`
 */
export function sshArguments(url: string): string[] {
  const { host, port, path } = targetOf(url);
  return [
    ...options.flatMap((option) => ["-o", option]),
    ...(port === undefined ? [] : ["-p", port]),
    ...["--", host.replace(/\[(.*)\]$/, "$1"), `git-upload-pack ${quoted(path.replace(/^\/~/, "~"))}`],
  ];
}

function targetOf(url: string): { host: string; port: string | undefined; path: string } {
  const [, hostInUrl, portInUrl, pathInUrl] =
    /^ssh:\/\/((?:[^@/]*@)?(?:\[[^\]]*\]|[^:/]*))(?::(\d+))?(\/.*)$/.exec(url) ?? [];
  if (hostInUrl !== undefined && pathInUrl !== undefined)
    return { host: hostInUrl, port: portInUrl, path: unescaped(pathInUrl) };
  const [, bracketed, port, plain, path = ""] =
    /^(?:\[([^:\]]+):(\d+)\]|((?:[^@:/]*@)?(?:\[[^\]]*\]|[^:]+))):(.*)$/.exec(url) ?? [];
  return { host: bracketed ?? plain ?? "", port, path };
}

/** Git decodes the path of a URL, but not of `host:path`. */
function unescaped(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    throw new SvcError("git_failed", `the path ${path} has a malformed % escape`);
  }
}

/** Always in quotes, because some servers read only this form. A history expansion is for csh. */
function quoted(path: string): string {
  return `'${path.replaceAll(/['!]/g, "'\\$&'")}'`;
}

/** @param uid the user as whom ssh runs */
export function connectOverSsh(url: string, uid: number, userHelpers: UserHelpers): Connect {
  return async ({ input, output, signal, timeoutMs, onStderrLine }) => {
    const userHelper = await userHelpers.as(uid);
    try {
      // Its exit code is not needed: git fails by itself if the connection ends early.
      await userHelper.runCommand(["ssh", ...sshArguments(url)], {
        env: { GIT_PROTOCOL: "version=2", SSH_ASKPASS_REQUIRE: "never" },
        stdin: input,
        stdout: output,
        onLine: onStderrLine,
        ...{ timeoutMs, signal },
      });
    } catch (error) {
      if (!(error instanceof SvcError) || error.code !== "not_found") throw error;
      throw new SvcError("git_failed", "ssh is not installed on this host", { cause: error });
    }
  };
}
