/** Tests that need compose beside an engine. */
import { execFileSync } from "node:child_process";
import test from "ava";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";

const lacksCompose = whyNoDocker === undefined && !hasCompose();
export const composeTest = lacksCompose ? test.skip : dockerTest;
export const needsCompose = lacksCompose ? " (skipped: needs docker compose or docker-compose)" : needsDocker;

function hasCompose(): boolean {
  return [["docker", "compose"], ["docker-compose"]].some(([program = "", ...args]) => {
    try {
      execFileSync(program, [...args, "version"], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  });
}
