/**
 * `npm run gen` writes the code and OpenAPI document for proto/ to gen/ and openapi/, the types of a manifest to gen/, and the
 * reference to docs/reference/. It builds everything in a temporary directory and then replaces only changed files, so that a
 * failure does not change the checkout. `--check` writes nothing, and fails if a committed file differs from the output.
 */
import { execFile, type ExecFileException } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { parse } from "yaml";
import { finishOpenApi } from "./finish-openapi.ts";
import { manifestTypes, type ManifestSchema } from "./manifest-types.ts";
import { toOpenApi30 } from "./openapi-30.ts";
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
    console.error(`out of date: ${stale.join(", ")}; run: npm run gen`);
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
    console.log("Go is not installed; openapi/openapi.json is made from the committed openapi/base.json.");
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
    await readFile(join(root, "src/packages/manifest/manifest.schema.json"), "utf8"),
  ) as ManifestSchema;
  await writeFile(join(outDir, "gen/manifest-document.ts"), manifestTypes(schema));
  const base = JSON.parse(await readFile(join(outDir, "openapi/base.json"), "utf8")) as BaseDocument;
  const document = finishOpenApi(base, await readFile(descriptors));
  await writeFile(join(outDir, "openapi/openapi.json"), `${JSON.stringify(document, undefined, 2)}\n`);
  const older = toOpenApi30(document);
  await writeFile(join(outDir, "openapi/openapi-3.0.json"), `${JSON.stringify(older, undefined, 2)}\n`);
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
 * Replaces the files in `directory` of the checkout that differ from the new ones, unless `--check` is set.
 * @param whole whether to remove files that are not generated any more
 * @returns the paths that differed
 */
async function replaceChanged(directory: string, whole: boolean): Promise<string[]> {
  const differing: string[] = [];
  const fresh = await filesBelow(join(scratch, directory));
  for (const file of fresh) {
    const path = join(directory, file);
    const content = await readFile(join(scratch, path));
    const present = await readFile(join(root, path)).catch(() => undefined);
    if (present !== undefined && content.equals(present)) continue;
    differing.push(path);
    if (check) continue;
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, `${path}.new`), content);
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

/** Runs a tool in the root of the checkout. @throws Error with the output of a tool that fails */
async function run(command: string, args: readonly string[]): Promise<void> {
  const path = `${join(root, "node_modules/.bin")}:${process.env["PATH"] ?? ""}`;
  try {
    await execute(command, args, { cwd: root, env: { ...process.env, PATH: path } });
  } catch (cause) {
    const { stdout = "", stderr = "", message } = cause as ExecFileException;
    throw new Error(`${stdout}${stderr}`.trim() || message, { cause });
  }
}
