/** Tests that need compose in addition to an engine. */
import { execFileSync } from "node:child_process";
import { delimiter } from "node:path";
import test from "ava";
import { systemDirs } from "../../../src/run-as/launch.ts";
import { hasCompose, searchPath } from "../../support/search-path.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";

const lacksCompose = whyNoDocker === undefined && !isThereIn(searchPath);
export const composeTest = lacksCompose ? test.skip : dockerTest;
export const needsCompose = lacksCompose ? " (skipped: needs docker compose or docker-compose)" : needsDocker;
/** The directory of the host's own compose, such as Debian's v1. */
export const hostSearchPath =
  whyNoDocker === undefined && searchPath.length > systemDirs.length && isThereIn(systemDirs)
    ? systemDirs
    : searchPath;

function isThereIn(dirs: readonly string[]): boolean {
  // Running the older one only to check that it exists takes as long as a container.
  if (dirs.some(hasCompose)) return true;
  try {
    execFileSync("docker", ["compose", "version"], { stdio: "ignore", env: { PATH: dirs.join(delimiter) } });
    return true;
  } catch {
    return false;
  }
}
