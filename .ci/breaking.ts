/**
 * The contract may only grow: held against the descriptor set of the last release, which lies beside it, as the sources of
 * a release lack what they import from node_modules. What broke nevertheless, while no 1.0 was promised, is on a list.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const root = join(import.meta.dirname, "..");
/** Replaced by `gen/svc.binpb` as it is at the next release, when the list of what broke begins anew. */
export const lastRelease = "proto/svc-0.2.0.binpb";
export const knownBreaks = "proto/before-1.0.txt";

export interface BreakingReport {
  /** Breaks that are not on the list, a line for each. */
  readonly broken: readonly string[];
  /** Lines of the list that name no break. */
  readonly stale: readonly string[];
}

/**
 * Holds a contract against the last release.
 * @param descriptors path of its descriptor set
 * @throws Error with what buf printed, when it could not compare them
 */
export async function findBreaks(descriptors: string): Promise<BreakingReport> {
  const found = await compare(descriptors, join(root, lastRelease));
  const text = await readFile(join(root, knownBreaks), "utf8");
  const listed = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return {
    broken: found.filter((line) => !listed.includes(line)),
    stale: listed.filter((line) => !found.includes(line)),
  };
}

async function compare(is: string, was: string): Promise<string[]> {
  const buf = join(root, "node_modules/.bin/buf");
  try {
    await promisify(execFile)(buf, ["breaking", is, "--against", was, "--error-format=json"], { cwd: root });
    return [];
  } catch (error) {
    const { code, stdout, stderr } = error as Error & { code: unknown; stdout: string; stderr: string };
    // With findings it ends with 100.
    if (code !== 100) throw new Error(stderr, { cause: error });
    return stdout
      .trim()
      .split("\n")
      .map((line) => {
        const { path, message } = JSON.parse(line) as { path: string; message: string };
        return `${path}: ${message}`;
      });
  }
}
