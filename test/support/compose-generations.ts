/** The compose programs of this host: Debian's docker-compose 1.29 and compose v2 resolve the same file differently. */
import { execFileSync } from "node:child_process";
import { delimiter, join } from "node:path";
import { systemDirs } from "../../src/run-as/launch.ts";
import { hasCompose } from "./search-path.ts";

export interface ComposeGeneration {
  /** Such as `compose 2`. */
  readonly name: string;
  readonly isClassic: boolean;
  /** The daemon's PATH, in which it finds this one. */
  readonly dirs: readonly string[];
  /** Why it cannot be used here; empty if it can. */
  readonly missing: string;
}

/** Contains a `docker` without the host's compose plugin, which the daemon prefers to docker-compose. */
const withoutPlugins = join(import.meta.dirname, "without-plugins");
/** Built by `.ci/run`. */
const tools = join(import.meta.dirname, "../../node_modules/.cache/svc-tools");

/** Both versions, whether or not they are installed. */
export const composeGenerations: readonly ComposeGeneration[] = [
  { major: 2, hint: "node_modules/.cache/svc-tools, which .ci/run builds" },
  { major: 1, hint: "Debian's package docker-compose" },
].map(({ major, hint }) => {
  const dirs = [tools, ...(process.env["PATH"] ?? "").split(delimiter), ...systemDirs];
  const dir = dirs.find((one) => hasCompose(one) && majorOf(one) === major);
  return {
    name: `compose ${major}`,
    isClassic: major === 1,
    dirs: [...(dir === undefined ? [] : [withoutPlugins, dir]), ...systemDirs],
    missing: dir === undefined ? ` (skipped: needs docker-compose ${major}, such as ${hint})` : "",
  };
});

/** The first version that is installed. */
export const installedCompose = composeGenerations.find(({ missing }) => missing === "");

/** The version of the docker-compose in a directory; `undefined` if it does not run. */
function majorOf(dir: string): number | undefined {
  try {
    const text = execFileSync(join(dir, "docker-compose"), ["version", "--short"], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
    return Number(/^v?(\d+)\./.exec(text.trim())?.[1]);
  } catch {
    return undefined;
  }
}
