/**
 * What most test processes load of packages, in a few files instead of six hundred: to find and to read so many takes as much of a
 * processor as the tests of a small file.
 */
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import http from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "../..");
const packagesDir = join(root, "node_modules");
const outDir = join(packagesDir, ".cache/svc-test-modules");

/** What AVA starts as a test process, and what test files import of it. */
const avaWorker = join(packagesDir, "ava/lib/worker/base.js");
const avaMain = join(packagesDir, "ava/entrypoints/main.js");
/** Packages of many small modules that most test files load. */
const packages = ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-node"];

/** What Node's HTTP has of its WebSocket client. Whoever imports the module loads all of that client, or does without these. */
const webSocketNames = ["WebSocket", "CloseEvent", "MessageEvent"];

/** @returns the argument of Node with which a test process loads them */
export async function buildOneFileModules(): Promise<string> {
  const names = (await Promise.all(packages.map(importableOf))).flat();
  // Of what is not here, there would be a second copy.
  const imported = Object.fromEntries(names.map((name) => [name, name.replaceAll("/", "-")]));
  await bundle({ "ava-worker": avaWorker, ava: avaMain }, true);
  // Failures have lines of it.
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

/** By what names others import its modules, but for single generated ones, which are in one of the others, too. */
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
