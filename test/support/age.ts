/** The real age, which .ci/run installs: svc's encryption and decryption are compared with it. */
import { execFileSync, spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";

export const hasAge = spawnSync("age", ["--version"]).status === 0;
export const needsAge = hasAge ? "" : " (needs age)";

export interface AgeKey {
  /** The identity file. */
  readonly file: string;
  /** The content of the file. */
  readonly identity: string;
  /** Only `AGE-SECRET-KEY-1…`. */
  readonly secret: string;
  readonly recipient: string;
}

export async function newAgeKey(dir: string, name: string): Promise<AgeKey> {
  const file = join(dir, name);
  execFileSync("age-keygen", ["-o", file], { stdio: "ignore" });
  const identity = await readFile(file, "utf8");
  const secret = /^AGE-SECRET-KEY-\S+$/m.exec(identity)?.[0] ?? "";
  const recipient = execFileSync("age-keygen", ["-y", file], { encoding: "utf8" }).trim();
  return { file, identity, secret, recipient };
}
