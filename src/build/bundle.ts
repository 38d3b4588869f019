/**
 * `npm run build [-- DIR [ARCH]]`: `dist/`, or that directory, which runs wherever it is copied to, on this platform (or on ARCH),
 * with nothing beside it but Node.
 */
import { build, transform, type BuildOptions, type Metafile, type Plugin } from "esbuild";
import { access, copyFile, glob, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { nativePackageDir } from "./native-package.ts";
import { builtinsOnUse, bundleHelperPrograms } from "./helper-programs.ts";
import { compiledSchemas } from "./compiled-schemas.ts";
import { writeThirdPartyFiles } from "./third-party.ts";
import { buildWeb } from "./web.ts";
import packageJson from "../../package.json" with { type: "json" };

const root = join(import.meta.dirname, "../..");
const sourceDir = join(root, "src");
const outDir = resolve(process.argv[2] ?? join(root, "dist"));
const freshDir = `${outDir}.new`;

/** The program, and the threads, which `daemon/programs.ts` finds by these names. */
const entryPoints = [
  "src/main.ts",
  "src/store/worker.ts",
  "src/host/processes/process-thread.ts",
  "src/backups/encryption/age-thread.ts",
  "src/backups/storages/s3-worker.ts",
  "src/packages/settings/settings-thread.ts",
];
const mainFile = "svc.cjs";
/** The oldest Node that runs svc: the major version. */
const leastNode = Number.parseInt(packageJson.engines.node.replace(">=", ""), 10);
/** The first line of the program, before anything that an older Node does not have. */
const versionCheck =
  `if(parseInt(process.versions.node,10)<${leastNode}){` +
  `console.error("svc needs Node ${leastNode} or newer, and this is "+process.version);process.exit(1)}`;
/** Programs that are started unchanged. */
const scripts = "run-as/*.sh";
/** Files that modules read from beside themselves, which for all of them is the bundle's directory. */
const assets = ["src/**/*.schema.json", "openapi/openapi.json"];
/** The index that comes with svc, and its packages. */
const packageIndex = ["examples/index.yaml", "examples/*/**"];
/** Files beside them that only the tour of a checkout uses. */
const ofTheTour = /^examples\/(?:try|releases)\//;
/** The API page and what it is made of, with the licences. */
const docs = [
  "src/server/http/pages/*",
  "node_modules/swagger-ui-dist/{swagger-ui.css,swagger-ui-bundle.js,swagger-ui-bundle.js.LICENSE.txt,LICENSE,NOTICE}",
];

/**
 * koffi, which finds the native code of a platform in a package beside its own, with one licence for both. Its
 * sources, its documentation, and what builds them stay behind.
 */
const nativePackage = nativePackageDir(process.argv[3] ?? process.arch);
const native = [
  "node_modules/koffi/{package.json,index.cjs,LICENSE.txt,src/koffi/index.cjs,src/koffi/src/static.cjs}",
  `${nativePackage}/{package.json,index.js,*/koffi.node}`,
];

/** Packages that the programs load on demand. */
const packages = [
  "node_modules/{yauzl,yazl}/{package.json,index.js,LICENSE,fd-slicer.js,crc32.js}",
  "node_modules/buffer-crc32/{package.json,LICENSE,dist/*}",
  "node_modules/re2js/{package.json,LICENSE,build/index.cjs}",
  "node_modules/pend/{package.json,index.js,LICENSE}",
];

/** Built-in modules that the daemon does not need at its start. */
const builtinsForLater = [
  "child_process",
  "dns/promises",
  "http2",
  "https",
  "perf_hooks",
  "worker_threads",
  "zlib",
];

/** Modules that packages load for features that svc does not use; they are omitted. */
const unused: readonly (readonly [module: string, importer: string])[] = [
  // Sub-commands that are programs of their own; it loads the network, too.
  ["node:child_process", "commander"],
  // An engine behind ssh, with native code; and sessions of BuildKit.
  ["ssh2", "docker-modem"],
  ["@grpc/grpc-js", "dockerode"],
  ["@grpc/proto-loader", "dockerode"],
];

const withoutUnused: Plugin = {
  name: "without-unused",
  setup: (build) => {
    for (const [module, importer] of unused) {
      build.onResolve({ filter: new RegExp(`^${module}$`) }, (resolved) =>
        resolved.importer.includes(`/node_modules/${importer}/`)
          ? { path: module, namespace: "unused" }
          : undefined,
      );
    }
    build.onLoad({ filter: /.*/, namespace: "unused" }, () => ({ contents: "export default {};" }));
  },
};

/** Modules that every command loads. */
const commonCliModules = ["src/cli/cli.ts", "src/cli/commands/ls.ts"].map((file) => join(root, file));

/**
 * Puts what every command loads into one file instead of thirty. esbuild keeps modules in one file only if the same lazy imports
 * reach them, so each lazy import of a part of the command line is made to reach them all.
 */
const commonCliFile: Plugin = {
  name: "common-cli-file",
  setup: (build) => {
    build.onResolve({ filter: /^\.{1,2}\/.*\.ts$/ }, ({ kind, path, resolveDir }) => {
      const file = resolve(resolveDir, path);
      const isPart = file.startsWith(join(sourceDir, "cli/")) && !commonCliModules.includes(file);
      return kind === "dynamic-import" && isPart ? { path: file, namespace: "cli-part" } : undefined;
    });
    build.onLoad({ filter: /.*/, namespace: "cli-part" }, ({ path }) => ({
      contents: [...commonCliModules.map((file) => `import "${file}";`), `export * from "${path}";`].join(
        "\n",
      ),
      resolveDir: root,
    }));
  },
};

/** For the Node that runs svc. */
const nodeOptions = {
  platform: "node",
  target: `node${leastNode}`,
  minifySyntax: true,
  minifyWhitespace: true,
} as const satisfies BuildOptions;

/** CommonJS has no `import.meta`. The directory is that of the bundle. */
const importMeta = {
  bundleDir: 'const bundleDir=require("node:path").dirname(__dirname);',
  moduleUrl: 'const moduleUrl=require("node:url").pathToFileURL(__filename).href;',
};

// esbuild ends with this program, and so does all that it holds: to collect it before takes a sixth of the build.
process.env["GOGC"] ??= "off";
await rm(freshDir, { recursive: true, force: true });
await mkdir(freshDir, { recursive: true });
const bundled = await bundleModules();
const pageFiles = await buildWeb(join(freshDir, "web"), root);
await bundleHelperPrograms({ root, outDir: freshDir, options: nodeOptions });
for await (const script of glob(scripts, { cwd: sourceDir })) await copy(join(sourceDir, script), script);
for await (const asset of glob(assets, { cwd: root })) await copy(join(root, asset), basename(asset));
for await (const unit of glob("packaging/**/svc{,-tcp}.{service,socket}", { cwd: root }))
  await copy(join(root, unit), unit);
for await (const guide of glob("docs/**/*.md", { cwd: root }))
  await copy(join(root, guide), guide.replace("docs/", "guide/"));
for await (const entry of glob(packageIndex, { cwd: root, withFileTypes: true })) {
  const file = relative(root, join(entry.parentPath, entry.name));
  if (entry.isFile() && !ofTheTour.test(file)) await copy(join(root, file), file);
}
const copied: string[] = [];
for await (const file of glob(docs, { cwd: root })) {
  await copy(join(root, file), join("docs", basename(file)));
  copied.push(file);
}
await access(join(root, nativePackage)).catch((cause: unknown) => {
  throw new Error(`${nativePackage} is not there: install it with npm ci, without --omit=optional`, {
    cause,
  });
});
for await (const file of glob([...native, ...packages], { cwd: root })) {
  await copy(join(root, file), file.slice(Math.max(0, file.lastIndexOf("node_modules/@koromix/"))));
  copied.push(file);
}
await writeThirdPartyFiles(freshDir, {
  root,
  files: [...bundled, ...pageFiles, ...copied],
  product: packageJson,
});
// The checkout's own package.json says that .js files are modules.
await writeFile(join(freshDir, "package.json"), '{ "type": "commonjs" }\n');
await rm(outDir, { recursive: true, force: true });
await rename(freshDir, outDir);
console.log(
  `${outDir} is all of svc, to be copied as a whole: start it with node ${join(outDir, mainFile)} daemon`,
);

/**
 * Splits the modules into files at their lazy imports. The files become CommonJS, because an ES module that imports a built-in
 * module makes Node load all of its lazy parts: of `node:http`, twice as much as Node's own start.
 * @returns the sources that are in the bundle
 */
async function bundleModules(): Promise<string[]> {
  const { outputFiles, metafile } = await build({
    ...nodeOptions,
    absWorkingDir: root,
    entryPoints,
    entryNames: "[name]",
    outdir: join(freshDir, "chunks"),
    bundle: true,
    splitting: true,
    format: "esm",
    external: ["koffi"],
    plugins: [withoutUnused, commonCliFile, builtinsOnUse(builtinsForLater), compiledSchemas(root)],
    define: { "import.meta.dirname": "bundleDir", "import.meta.url": "moduleUrl" },
    legalComments: "none",
    logLevel: "warning",
    write: false,
    metafile: true,
  });
  await mkdir(join(freshDir, "chunks"));
  await Promise.all(
    outputFiles.map(async ({ path, text }) => {
      const { code } = await transform(text, {
        ...nodeOptions,
        format: "cjs",
        supported: { "dynamic-import": false },
      });
      const prelude = Object.entries(importMeta).filter(([name]) => text.includes(name));
      await writeFile(path, `"use strict";${prelude.map(([, code]) => code).join("")}${code}`);
    }),
  );
  const start = `#!/usr/bin/env node\n"use strict";${versionCheck}\nrequire("./chunks/main.js");\n`;
  await writeFile(join(freshDir, mainFile), start, { mode: 0o755 });
  return Object.values(metafile.outputs).flatMap(inputsOf);
}

/** The inputs that contribute to an output. */
function inputsOf({ inputs }: Metafile["outputs"][string]): string[] {
  return Object.keys(inputs).filter((file) => (inputs[file]?.bytesInOutput ?? 0) > 0);
}

async function copy(from: string, to: string): Promise<void> {
  const target = join(freshDir, to);
  await mkdir(dirname(target), { recursive: true });
  await copyFile(from, target);
}
