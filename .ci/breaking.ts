/**
 * The contract may only grow: it is compared with the last release's descriptor set, which is stored beside it, because
 * the sources of a release lack their node_modules imports. Breaking changes before 1.0 are on a list.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const root = join(import.meta.dirname, "..");
/** Replaced by the current `gen/svc.binpb` at the next release, when the list of breaking changes is emptied. */
export const lastRelease = "proto/svc-0.2.0.binpb";
export const knownBreaks = "proto/before-1.0.txt";

export interface BreakingReport {
  /** Breaking changes that are not on the list, one line each. */
  readonly broken: readonly string[];
  /** Lines of the list without a breaking change. */
  readonly stale: readonly string[];
}

/**
 * Compares a contract with the last release. @param descriptors path of its descriptor set @throws Error with buf's
 * output, if buf could not compare them
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
    // buf exits with 100 if it has findings.
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
