import { execFileSync } from "node:child_process";

/** Whether Python with a YAML 1.1 parser is available, as used by compose v1 and other engines' tools. */
export function canReadYaml(): boolean {
  try {
    execFileSync("python3", ["-c", "import yaml"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
