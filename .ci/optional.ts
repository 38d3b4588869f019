/** Optional programs that this host lacks, and what is skipped without them: one line each. */
import { access, constants } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { defaultPaths } from "../src/daemon/paths.ts";

interface Optional {
  /** Its name. */
  name: string;
  isThere: () => Promise<boolean>;
}

const root: Optional = { name: "root privileges", isThere: () => Promise.resolve(process.getuid?.() === 0) };
const docker: Optional = { name: "Docker", isThere: () => canConnectTo(engineSocket()) };
const dockerd: Optional = { name: "dockerd", isThere: () => isInPath("dockerd") };
const go: Optional = { name: "Go", isThere: () => isInPath("go") };
const git: Optional = { name: "git", isThere: () => isInPath("git") };
const python: Optional = { name: "Python", isThere: () => isInPath("python3") };

/** Lines such as `No Docker: …`, one for each key of `leftOut` that is missing here. */
export async function missing(leftOut: Partial<Record<keyof typeof all, string>>): Promise<string[]> {
  const lines: string[] = [];
  for (const [key, consequence] of Object.entries(leftOut)) {
    const optional = all[key as keyof typeof all];
    if (!(await optional.isThere())) lines.push(`No ${optional.name}: ${consequence}`);
  }
  return lines;
}

const all = { root, docker, dockerd, go, git, python };

/** Where the daemon looks for the engine, including `DOCKER_HOST`. */
function engineSocket(): string {
  return defaultPaths({ uid: process.getuid?.() ?? -1, home: homedir(), env: process.env }).engineSocket;
}

async function canConnectTo(socket: string): Promise<boolean> {
  return access(socket, constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
}

async function isInPath(program: string): Promise<boolean> {
  const tries = (process.env["PATH"] ?? "")
    .split(delimiter)
    .filter((dir) => dir !== "")
    .map((dir) => access(join(dir, program), constants.X_OK));
  return (await Promise.allSettled(tries)).some(({ status }) => status === "fulfilled");
}
