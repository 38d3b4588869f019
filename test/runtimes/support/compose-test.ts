/** Tests that need compose beside an engine. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import test from "ava";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";

const lacksCompose = whyNoDocker === undefined && !hasCompose();
export const composeTest = lacksCompose ? test.skip : dockerTest;
export const needsCompose = lacksCompose ? " (skipped: needs docker compose or docker-compose)" : needsDocker;

function hasCompose(): boolean {
  // To run the older one, only to see that it is there, takes as long as a container.
  if ((process.env["PATH"] ?? "").split(delimiter).some((dir) => existsSync(join(dir, "docker-compose"))))
    return true;
  try {
    execFileSync("docker", ["compose", "version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
