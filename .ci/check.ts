/**
 * `npm run check [NAME …]`: everything about the sources that is not a test. Each check prints one line with its time,
 * and a failed one the output of its tool; the last line is the summary. With names: only those.
 */
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { findBreaks, knownBreaks, lastRelease } from "./breaking.ts";
import { missing } from "./optional.ts";

interface Outcome {
  isGood: boolean;
  /** The output of the tool. */
  text: string;
  /** Further text beside the name. */
  note?: string;
}

const root = join(import.meta.dirname, "..");
const checkTimeoutMs = 10 * 60_000;

const checks: Record<string, () => Promise<Outcome>> = {
  // The longest first: it takes as long as all the others together, which run in parallel.
  lint: () => tool("eslint", "--max-warnings=0", "."),
  types: () => tool("tsc", "-p", "."),
  format: () => tool("prettier", "--check", "--log-level=warn", "."),
  "types-web": () => tool("tsc", "-p", "src/web"),
  unused: () => tool("knip", "--no-progress"),
  "buf-lint": () => tool("buf", "lint", "--path", "proto/svc"),
  "buf-breaking": checkBreaking,
  generated: () => tool("node", "src/codegen/generate.ts", "--check"),
  prose: () => tool("node", ".ci/prose.ts"),
  imports: () => tool("ava", "test/architecture/**/*.test.ts"),
};

const wanted = process.argv.slice(2);
const unknown = wanted.find((name) => !Object.hasOwn(checks, name));
if (unknown !== undefined) {
  console.error(`No check "${unknown}": there are ${Object.keys(checks).join(", ")}.`);
  process.exit(2);
}
for (const line of await missing({ go: "openapi/base.json is taken as committed, not generated again." })) {
  console.log(line);
}
const chosen = Object.entries(checks).filter(([name]) => wanted.length === 0 || wanted.includes(name));
const failed: string[] = [];
const waiting = chosen.values();
// Two at a time: the slow ones use one CPU each, and small hosts have two.
await Promise.all([performAll(), performAll()]);
console.log(
  failed.length === 0
    ? `All ${chosen.length} checks passed.`
    : `${failed.length} of ${chosen.length} checks failed: ${failed.join(", ")}.`,
);
process.exitCode = failed.length === 0 ? 0 : 1;

async function performAll(): Promise<void> {
  for (const [name, perform] of waiting) {
    const startedAt = performance.now();
    const { isGood, text, note } = await perform();
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    console.log(`${isGood ? "✔" : "✘"} ${name}${note === undefined ? "" : ` ${note}`} (${seconds} s)`);
    if (isGood) continue;
    failed.push(name);
    console.log(text.trimEnd().replaceAll(/^/gm, "    "));
  }
}

/** Runs one of the project's tools in the top directory of the checkout. */
async function tool(program: string, ...args: string[]): Promise<Outcome> {
  const { error, stdout, stderr } = await run(join(root, "node_modules/.bin", program), args);
  return { isGood: error === undefined, text: `${stdout.toString()}${stderr.toString() || (error ?? "")}` };
}

async function checkBreaking(): Promise<Outcome> {
  const scratch = await mkdtemp(join(tmpdir(), "svc-check-"));
  try {
    const descriptors = join(scratch, "svc.binpb");
    const built = await tool("buf", "build", "--path", "proto/svc", "--output", descriptors);
    if (!built.isGood) return built;
    const { broken, stale } = await findBreaks(descriptors);
    const text = [
      ...broken.map((line) => `Breaks clients: ${line}`),
      ...stale.map((line) => `In ${knownBreaks}, but no break: ${line}`),
    ].join("\n");
    return { isGood: text === "", text, note: `against ${lastRelease}` };
  } catch (error) {
    return { isGood: false, text: String(error) };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function run(
  program: string,
  args: string[],
): Promise<{ error?: string; stdout: Buffer; stderr: Buffer }> {
  try {
    return await promisify(execFile)(program, args, {
      cwd: root,
      encoding: "buffer",
      maxBuffer: 64 * 1024 * 1024,
      timeout: checkTimeoutMs,
    });
  } catch (error) {
    const { message, stdout, stderr } = error as Error & { stdout: Buffer; stderr: Buffer };
    return { error: message, stdout, stderr };
  }
}
