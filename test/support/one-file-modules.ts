/**
 * Package modules that most test processes load, bundled into a few files instead of six hundred: finding and reading
 * that many uses as much CPU time as the tests of a small file.
 */
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import http from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "../..");
const packagesDir = join(root, "node_modules");
const outDir = join(packagesDir, ".cache/svc-test-modules");

/** The entry of AVA's test process, and the modules that test files import from it. */
const avaWorker = join(packagesDir, "ava/lib/worker/base.js");
const avaMain = join(packagesDir, "ava/entrypoints/main.js");
/** Packages of many small modules that most test files load. */
const packages = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];

/**
 * The exports of Node's WebSocket client in `node:http`, which make importing the module load that client; omitted
 * here.
 */
const webSocketNames = ["WebSocket", "CloseEvent", "MessageEvent"];

/** @returns the argument of Node with which a test process loads them */
export async function buildOneFileModules(): Promise<string> {
  const names = (await Promise.all(packages.map(importableOf))).flat();
  // A module missing here would exist twice.
  const imported = Object.fromEntries(names.map((name) => [name, name.replaceAll("/", "-")]));
  await bundle({ "ava-worker": avaWorker, ava: avaMain }, true);
  // Stack traces of failures show its lines.
  await bundle(Object.fromEntries(Object.entries(imported).map(([name, file]) => [file, name])), false);
  await writeFile(join(outDir, "http.js"), httpModule());
  const files = {
    [urlOf(avaWorker)]: "ava-worker",
    ava: "ava",
    http: "http",
    "node:http": "http",
    ...imported,
  };
  const places = Object.entries(files).map(([name, file]) => [name, urlOf(join(outDir, `${file}.js`))]);
  await writeFile(join(outDir, "places.json"), JSON.stringify(Object.fromEntries(places)));
  return `--import=${urlOf(join(import.meta.dirname, "redirect-modules.mjs"))}`;
}

/** The import specifiers of its modules, except single generated ones, which are included in one of the others. */
async function importableOf(name: string): Promise<string[]> {
  const { exports } = JSON.parse(await readFile(join(packagesDir, name, "package.json"), "utf8")) as {
    exports: Record<string, unknown>;
  };
  return Object.keys(exports)
    .filter((path) => !/\.js(?:on)?$/.test(path))
    .map((path) => join(name, path));
}

function httpModule(): string {
  const names = Object.keys(http).filter((name) => !webSocketNames.includes(name));
  return `const http = process.getBuiltinModule("node:http");
export default http;
export const { ${names.join(", ")} } = http;
`;
}

/** @param entryPoints modules by the names of their files */
async function bundle(entryPoints: Record<string, string>, isMinified: boolean): Promise<void> {
  await build({
    entryPoints,
    absWorkingDir: root,
    outdir: outDir,
    chunkNames: "shared-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: `node${process.versions.node}`,
    banner: {
      js: 'import { createRequire as requireFor } from "node:module"; const require = requireFor(import.meta.url);',
    },
    legalComments: "none",
    minifySyntax: isMinified,
    minifyWhitespace: isMinified,
    logLevel: "warning",
  });
}

function urlOf(file: string): string {
  return pathToFileURL(file).href;
}
