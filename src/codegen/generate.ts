/**
 * `npm run gen`: everything that follows from proto/ is written to gen/ and openapi/, the types of a manifest to gen/, and the
 * reference to docs/reference/.
 * All of it is built in a temporary directory first and only what changed is replaced, so that a failure leaves
 * the checkout as it was. With `--check` nothing is written: it fails when a committed file is not what comes out.
 */
import { execFile, type ExecFileException } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { parse } from "yaml";
import { finishOpenApi } from "./finish-openapi.ts";
import { manifestTypes, type ManifestSchema } from "./manifest-types.ts";
import type { BaseDocument } from "./openapi-document.ts";

interface BufTemplate {
  plugins: { local: string | string[] }[];
}

const execute = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const check = process.argv.includes("--check");
const scratch = await mkdtemp(join(tmpdir(), "svc-gen-"));
try {
  await generate(scratch);
  const stale = [
    ...(await replaceChanged("gen", true)),
    ...(await replaceChanged("openapi", false)),
    ...(await replaceChanged("docs/reference", true)),
  ];
  if (check && stale.length > 0) {
    console.error(`Not what \`npm run gen\` writes: ${stale.join(", ")}`);
    process.exitCode = 1;
  } else if (!check) {
    console.log(stale.length === 0 ? "Nothing changed." : `Wrote ${stale.join(", ")}`);
  }
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  await rm(scratch, { recursive: true, force: true });
}

async function generate(outDir: string): Promise<void> {
  const template = parse(await readFile(join(root, "buf.gen.yaml"), "utf8")) as BufTemplate;
  const hasGo = await run("go", ["version"]).then(
    () => true,
    () => false,
  );
  if (!hasGo) {
    console.log(
      "Go is not installed: openapi/openapi.json is finished from the committed openapi/base.json.",
    );
    template.plugins = template.plugins.filter((plugin) => plugin.local[0] !== "go");
    await cp(join(root, "openapi/base.json"), join(outDir, "openapi/base.json"));
  }
  const descriptors = join(outDir, "gen/svc.binpb");
  await mkdir(dirname(descriptors), { recursive: true });
  await Promise.all([
    run("buf", ["generate", "--template", JSON.stringify(template), "--output", outDir]),
    run("buf", ["build", "--path", "proto/svc", "--output", descriptors]),
  ]);

  const schema = JSON.parse(
    await readFile(join(root, "src/packages/manifest.schema.json"), "utf8"),
  ) as ManifestSchema;
  await writeFile(join(outDir, "gen/manifest-document.ts"), manifestTypes(schema));
  const base = JSON.parse(await readFile(join(outDir, "openapi/base.json"), "utf8")) as BaseDocument;
  const document = finishOpenApi(base, await readFile(descriptors));
  await writeFile(join(outDir, "openapi/openapi.json"), `${JSON.stringify(document, undefined, 2)}\n`);
  await run("openapi-typescript", [
    join(outDir, "openapi/openapi.json"),
    "--output",
    join(outDir, "gen/openapi.ts"),
  ]);
  await run("node", [
    "src/build/reference.ts",
    join(outDir, "openapi/openapi.json"),
    descriptors,
    join(outDir, "docs/reference"),
  ]);
}

/**
 * Brings `directory` of the checkout in line with the scratch directory (only says so under `--check`).
 * @param whole remove files that nobody generates any more
 * @returns the paths that differed
 */
async function replaceChanged(directory: string, whole: boolean): Promise<string[]> {
  const differing: string[] = [];
  const fresh = await filesBelow(join(scratch, directory));
  for (const file of fresh) {
    const path = join(directory, file);
    const wanted = await readFile(join(scratch, path));
    const present = await readFile(join(root, path)).catch(() => undefined);
    if (present !== undefined && wanted.equals(present)) continue;
    differing.push(path);
    if (check) continue;
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, `${path}.new`), wanted);
    await rename(join(root, `${path}.new`), join(root, path));
  }
  const gone = whole ? (await filesBelow(join(root, directory))).filter((file) => !fresh.includes(file)) : [];
  for (const file of gone) {
    differing.push(join(directory, file));
    if (!check) await rm(join(root, directory, file));
  }
  return differing;
}

async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1))
    .sort();
}

/** Runs a tool of the checkout in its root. @throws Error with what the tool printed, when it fails. */
async function run(command: string, args: readonly string[]): Promise<void> {
  const path = `${join(root, "node_modules/.bin")}:${process.env["PATH"] ?? ""}`;
  try {
    await execute(command, args, { cwd: root, env: { ...process.env, PATH: path } });
  } catch (cause) {
    const { stdout = "", stderr = "", message } = cause as ExecFileException;
    throw new Error(`${stdout}${stderr}`.trim() || message, { cause });
  }
}
