/** Builds the single executable: Node's single executable application with the bundle's files as assets. */
import { build } from "esbuild";
import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import { chmod, copyFile, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import type { PackedFile } from "./executable/unpack.ts";
import { billWith, licenseSection, thirdPartyFiles } from "./third-party.ts";

const run = promisify(execFile);
/** Marker of the location for the assets (Node.js documentation, Single executable applications). */
const fuse = "NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2";
const mainFile = "start.cjs";
/** Loads a module with top-level await, which `require` cannot. */
const loader = { file: "load.cjs", code: "module.exports = (file) => import(file);\n" };

export interface ExecutableOptions {
  /** The checkout. */
  readonly root: string;
  /** Built for the platform and architecture of the running Node. */
  readonly bundle: string;
  readonly outFile: string;
}

export async function makeSingleExecutable({ root, bundle, outFile }: ExecutableOptions): Promise<void> {
  const work = await mkdtemp(join(tmpdir(), "svc-executable-"));
  try {
    const blob = await makeBlob(root, bundle, work);
    await copyFile(process.execPath, outFile);
    await chmod(outFile, 0o755);
    const postject = join(root, "node_modules/postject/dist/cli.js");
    const resource = ["NODE_SEA_BLOB", blob, "--sentinel-fuse", fuse];
    await run(process.execPath, [postject, outFile, ...resource]);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * Builds the blob with all of svc's files.
 * @param work directory for intermediate files and the result
 * @returns path of the blob
 */
export async function makeBlob(root: string, bundle: string, work: string): Promise<string> {
  await writeFile(join(work, loader.file), loader.code, { mode: 0o644 });
  const sources = new Map([[loader.file, join(work, loader.file)]]);
  const entries = await readdir(bundle, { recursive: true, withFileTypes: true });
  for (const entry of entries.filter((each) => each.isFile())) {
    const path = join(entry.parentPath, entry.name);
    sources.set(relative(bundle, path), path);
  }
  sources.set(thirdPartyFiles.licenses, await writeLicenses(root, bundle, work));
  sources.set(thirdPartyFiles.bom, await writeBill(bundle, work));
  const assets = Object.fromEntries(sources);
  await bundleStart(root, join(work, mainFile), await Promise.all(Object.entries(assets).map(readFileEntry)));
  // The output contains this path, so it is relative.
  const config = { main: mainFile, output: "blob", disableExperimentalSEAWarning: true, assets };
  await writeFile(join(work, "config.json"), JSON.stringify(config));
  await run(process.execPath, ["--experimental-sea-config", "config.json"], { cwd: work });
  return join(work, config.output);
}

/** Licenses of the bundle and of Node. Resolves to the path. */
async function writeLicenses(root: string, bundle: string, work: string): Promise<string> {
  const text = await readNodeLicense(root);
  const section = licenseSection({
    ...{ name: "Node.js", version: process.versions.node, license: "MIT AND others", texts: [text] },
  });
  const path = join(work, thirdPartyFiles.licenses);
  const others = await readFile(join(bundle, thirdPartyFiles.licenses), "utf8");
  await writeFile(path, `${others}\n${section}`, { mode: 0o644 });
  return path;
}

/** Bill of materials of the bundle and Node. Resolves to the path. */
async function writeBill(bundle: string, work: string): Promise<string> {
  const { node } = process.versions;
  const path = join(work, thirdPartyFiles.bom);
  const ofBundle = await readFile(join(bundle, thirdPartyFiles.bom), "utf8");
  const component = {
    ...{ type: "platform", "bom-ref": `node@${node}`, name: "node", version: node },
    licenses: [{ license: { name: `MIT and those of its parts: ${thirdPartyFiles.licenses}` } }],
    purl: `pkg:generic/node@${node}`,
  };
  await writeFile(path, billWith(ofBundle, component), { mode: 0o644 });
  return path;
}

/**
 * License of the running Node, installed by npm or from an archive of nodejs.org. @throws Error when it is not found
 */
async function readNodeLicense(root: string): Promise<string> {
  const ofNpm = `node_modules/node/node_modules/node-${process.platform}-${process.arch}`;
  for (const dir of [join(dirname(process.execPath), ".."), join(root, ofNpm)]) {
    const text = await readFile(join(dir, "LICENSE"), "utf8").catch(() => undefined);
    if (text?.startsWith("Node.js is licensed")) return text;
  }
  throw new Error(`the license of ${process.execPath} was not found, so it cannot be distributed`);
}

async function readFileEntry([path, source]: [string, string]): Promise<PackedFile> {
  const sum = hash("sha256", await readFile(source));
  return { path, mode: ((await stat(source)).mode & 0o100) === 0 ? 0o644 : 0o755, sum };
}

async function bundleStart(root: string, outfile: string, files: readonly PackedFile[]): Promise<void> {
  const listed = JSON.stringify(files);
  await build({
    entryPoints: [join(root, "src/build/executable/start.ts")],
    outfile,
    bundle: true,
    format: "cjs",
    platform: "node",
    target: `node${process.versions.node}`,
    minify: true,
    define: {
      packedFiles: listed,
      packedId: JSON.stringify(hash("sha256", listed)),
      loaderFile: JSON.stringify(loader.file),
    },
    logLevel: "warning",
  });
}
