import { execFileSync } from "node:child_process";

/** Whether Python is here with what reads YAML 1.1, as the first compose and the tools of other engines do. */
export function canReadYaml(): boolean {
  try {
    execFileSync("python3", ["-c", "import yaml"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
