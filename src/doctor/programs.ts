/** The programs that svc needs: node, and those of the system. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { ok, problem, type Check, type Finding } from "./finding.ts";

const oldestNode = 24;
const timeoutMs = 10_000;

export const checkNode: Check = () => nodeFinding(process.versions.node);

export function nodeFinding(version: string): Finding {
  const major = Number(version.split(".")[0]);
  return major >= oldestNode
    ? ok(`version ${version}`)
    : problem(`version ${version} is too old: install Node.js ${oldestNode} or newer`);
}

export const checkGit: Check = () => versionOf("git", "packages cannot be fetched: install git");

export const checkSetpriv: Check = ({ config }) =>
  config.mode === "user"
    ? ok("not needed: everything runs as one user")
    : versionOf("setpriv", "apps cannot run as their users: install util-linux");

export const checkUnshare: Check = async ({ config, uid }) => {
  if (config.mode === "user") return ok("not needed: everything runs as one user");
  try {
    const args = ["--pid", "--fork", "--kill-child", "--", "true"];
    await promisify(execFile)("unshare", args, { timeout: timeoutMs });
    return ok("PID namespaces can be created");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT")
      return problem("compose files cannot be read: install util-linux");
    return uid === 0
      ? ok(
          "this host does not allow PID namespaces; svc finds leftover processes of compose by their user ID, and kills them",
        )
      : ok("installed; run svc doctor as root to test PID namespaces");
  }
};

async function versionOf(program: string, missing: string): Promise<Finding> {
  try {
    const { stdout } = await promisify(execFile)(program, ["--version"], { timeout: timeoutMs });
    return ok(stdout.split("\n", 1)[0] ?? "");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return problem(code === "ENOENT" ? missing : `${program} does not work, so ${missing}`);
  }
}
