/**
 * `npm run build [-- DIR [ARCH]]`: `dist/`, or that directory, which runs wherever it is copied to, on this platform (or on that
 * processor), with nothing beside it but Node.
 *
 * The command line starts for every command, so its bundle must be small and CommonJS (Node loads that faster, and
 * `import` of a built-in module reads all of its lazy parts). esbuild splits only ESM at the lazy imports; so it does
 * that first, and each piece becomes CommonJS afterwards.
 */
import {
  build,
  transform,
  type BuildOptions,
  type BuildResult,
  type Metafile,
  type OutputFile,
  type Plugin,
} from "esbuild";
import { execFile } from "node:child_process";
import { access, copyFile, glob, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { nativePackageDir } from "./native-package.ts";
import { writeCommandFiles } from "./command-files.ts";
import { compiledSchemas } from "./compiled-schemas.ts";
import { writeThirdPartyFiles } from "./third-party.ts";
import { buildWeb } from "./web.ts";
import packageJson from "../../package.json" with { type: "json" };

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const sourceDir = join(root, "src");
const outDir = resolve(process.argv[2] ?? join(root, "dist"));
const freshDir = `${outDir}.new`;

/** The program, and the other threads that have to be files of their own, where `daemon/programs.ts` looks for them. */
const entryPoints = {
  svc: "src/main.ts",
  "store/worker": "src/store/worker.ts",
  "host/process-thread": "src/host/process-thread.ts",
  "backups/age/age-thread": "src/backups/age/age-thread.ts",
  "backups/storages/s3-worker": "src/backups/storages/s3-worker.ts",
};
const mainFile = "svc.cjs";
/** The main piece, as esbuild calls it. */
const mainPiece = "svc.js";
/** Pieces that lie in one file, `NAME.js`, of which `NAME.code` is what V8 has made; `loader` loads them. */
interface Pack {
  readonly name: string;
  readonly loader: string;
  readonly entries: readonly string[];
}
/** What answers the commands that are typed all day. */
const firstStage: Pack = {
  ...{ name: "first-stage", loader: "pack.js" },
  entries: [entryPoints.svc, "src/cli/quick.ts", "src/cli/complete.ts", "src/cli/complete-names.ts"],
};
/** What begins to read the store, beside which the rest of the daemon loads. */
const aheadOfDaemon: Pack = {
  ...{ name: "ahead", loader: "ahead-pack.js" },
  entries: ["src/daemon/config.ts", "src/daemon/programs.ts", "src/daemon/store-ahead.ts"],
};
/** What the daemon loads before it answers, and a command that does its work. */
const wholeDaemon: Pack = {
  ...{ name: "daemon", loader: "daemon-pack.js" },
  entries: [
    ...["src/daemon/daemon.ts", "src/daemon/listen-fds.ts", "src/daemon/page-files.ts"],
    "src/cli/in-process.ts",
  ],
};
/** The thread that installations start, as one piece: what it loads for its first answer takes half as long so. */
const settingsThread = {
  ...{ name: "settings", loader: "settings-pack.js", entry: "src/packages/settings-thread.ts" },
  file: "packages/settings-thread.js",
};
/** In the order in which they are loaded: a piece is in the first one that needs it. */
const packsInOrder = [firstStage, aheadOfDaemon, wholeDaemon] as const;
const kept = { write: false, metafile: true } as const;
/** The oldest Node that runs svc: the major version. */
const leastNode = Number.parseInt(packageJson.engines.node.replace(">=", ""), 10);
/** The first line of the program, before anything that an older Node does not have. */
const versionCheck =
  `if(parseInt(process.versions.node,10)<${leastNode}){` +
  `console.error("svc needs Node ${leastNode} or newer, and this is "+process.version);process.exit(1)}`;
/** A pack is a module like others, so that Node's own cache of what is compiled helps where there is no code yet. */
const packStart = "module.exports=";
/** One for all who load a pack, and so one of each piece. */
const packLoader = ({ name }: Pick<Pack, "name">): string => `"use strict";
const fs=require("node:fs"),filename=__dirname+"/${name}.js",code=__dirname+"/${name}.code",compiles=process.argv[2]==="__compile";
let cachedData,load;
try{cachedData=fs.readFileSync(code)}catch{}
if(cachedData===undefined&&!compiles)load=require(filename);
else{const{Script}=require("node:vm"),script=new Script(fs.readFileSync(filename,"latin1").slice(${packStart.length}),{filename,cachedData});
load=script.runInThisContext();
if(compiles)process.once("exit",()=>{fs.writeFileSync(code+".new",script.createCachedData());fs.renameSync(code+".new",code)})}
module.exports=load(require,__dirname);
`;
/** A piece that is a file, too, is one module all the same, whoever loads it first. */
const packBody =
  "function __pack(name){let module=loaded[name];if(module===undefined){" +
  'const file=files.has(name)?__dirname+"/"+name:undefined;' +
  "if(file!==undefined&&require.cache[file]!==undefined)module=loaded[name]=require.cache[file];else{" +
  "module=loaded[name]={exports:{},loaded:true,id:name,children:[]};" +
  "if(file!==undefined)require.cache[file]=module;chunks[name](module.exports,module)}}return module.exports}" +
  "return __pack";
/** Programs that run as another user: each becomes one file, as loading the sixty of the helper takes longer than to start Node. */
const programs = ["src/identity/helper.mjs", "src/runtimes/process/supervisor.mjs"];
/** What is started as it is. */
const scripts = "identity/*.sh";
/** Files that modules read from beside themselves, which for all of them is the bundle's directory. */
const assets = ["src/**/*.schema.json", "openapi/openapi.json"];
/** The index that comes with svc, and its packages. */
const packageIndex = ["examples/index.yaml", "examples/*/**"];
/** What is beside them for the tour of a checkout alone. */
const ofTheTour = /^examples\/(?:try|releases)\//;
/** The API page and what it is made of, with the licences. */
const docs = [
  "src/transport/pages/*",
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

/** What the programs load when they need it. */
const packages = [
  "node_modules/{yauzl,yazl}/{package.json,index.js,LICENSE,fd-slicer.js,crc32.js}",
  "node_modules/buffer-crc32/{package.json,LICENSE,dist/*}",
  "node_modules/re2js/{package.json,LICENSE,build/index.cjs}",
  "node_modules/pend/{package.json,index.js,LICENSE}",
];

/**
 * What the daemon evaluates at its first use and not while it starts: the descriptors of all services take as long as Node's own
 * start. Each file of descriptors is a piece of its own.
 */
const descriptors = "gen/**/*_pb.ts";
const forLater = /^gen\/.*_pb\.ts$/;
/** What of Node the start of the daemon has no use for, and which takes its time to load: read at its first use. */
const builtinsForLater = [
  ...["node:child_process", "node:dns/promises", "node:http2", "node:https", "node:perf_hooks"],
  ...["node:worker_threads", "node:zlib"],
];

/** For work with archives, which few of the programs are started for. */
const builtinsForArchives = ["node:crypto"];

/** What packages load for work that svc has none of: it is left out. */
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

/** For the Node that runs svc. */
const nodeOptions = {
  platform: "node",
  target: `node${leastNode}`,
  minifySyntax: true,
  minifyWhitespace: true,
} as const satisfies BuildOptions;

/** How modules become files. */
const bundleOptions = {
  ...kept,
  ...nodeOptions,
  absWorkingDir: root,
  outdir: freshDir,
  bundle: true,
  legalComments: "none",
  logLevel: "warning",
} as const satisfies BuildOptions;

/** How they become pieces, each CommonJS afterwards (`commonJs`). */
const moduleOptions = {
  ...bundleOptions,
  format: "esm",
  external: ["koffi"],
  plugins: [withoutUnused, compiledSchemas(root)],
  define: {
    "import.meta.dirname": "bundleDir",
    "import.meta.url": "bundleUrl",
  },
} as const satisfies BuildOptions;

// esbuild ends with this program, and so does all that it holds: to collect it before takes a sixth of the build.
process.env["GOGC"] ??= "off";
await rm(freshDir, { recursive: true, force: true });
await mkdir(freshDir, { recursive: true });
const pieces = await bundle();
await writePieces(pieces);
const threadInputs = await bundleSettingsThread();
const pageFiles = await buildWeb(join(freshDir, "web"), root);
await bundlePrograms();
for await (const script of glob(scripts, { cwd: sourceDir })) await copy(join(sourceDir, script), script);
for await (const asset of glob(assets, { cwd: root })) await copy(join(root, asset), basename(asset));
for await (const unit of glob("packaging/**/svc.{service,socket}", { cwd: root }))
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
await writeCommandFiles(freshDir);
const bundled = [...inputsOf(pieces.metafile.outputs), ...threadInputs];
await writeThirdPartyFiles(freshDir, {
  root,
  files: [...bundled, ...pageFiles, ...copied],
  product: packageJson,
});
// The checkout's own package.json says that .js files are modules.
await writeFile(join(freshDir, "package.json"), '{ "type": "commonjs" }\n');
// Which differs from one Node to the next: a package makes its own where it is installed.
if (process.argv[3] === undefined) await run(process.execPath, [join(freshDir, mainFile), "__compile"]);
await rm(outDir, { recursive: true, force: true });
await rename(freshDir, outDir);
console.log(
  `${outDir} is all of svc, to be copied as a whole: start it with node ${join(outDir, mainFile)} daemon`,
);

async function bundle(): Promise<BuildResult<typeof kept>> {
  const files = await Array.fromAsync(glob(descriptors, { cwd: root }));
  const apart = files.map((file): [string, string] => [
    `chunks/${file.replaceAll("/", "-").replace(/\.ts$/, "")}`,
    file,
  ]);
  return build({
    ...moduleOptions,
    entryPoints: { ...entryPoints, ...Object.fromEntries(apart) },
    splitting: true,
    chunkNames: "chunks/[name]-[hash]",
  });
}

/** @returns what it is made of */
async function bundleSettingsThread(): Promise<string[]> {
  const { name, loader, entry, file } = settingsThread;
  const { outputFiles, metafile } = await build({
    ...moduleOptions,
    entryPoints: { [`chunks/${name}`]: entry },
  });
  for (const piece of outputFiles) {
    const { target, code } = await commonJs(piece, true);
    const run = `"use strict";const module={exports:{}},exports=module.exports;${code}return module.exports`;
    await writeFile(target, `${packStart}(function(require,__dirname){${run}})`);
  }
  await writeFile(join(freshDir, "chunks", loader), packLoader({ name }));
  const target = join(freshDir, file);
  await mkdir(dirname(target), { recursive: true });
  await writeFile(target, `module.exports=require("../chunks/${loader}");\n`);
  return inputsOf(metafile.outputs);
}

/** Of which something is left in the outputs. */
function inputsOf(outputs: Metafile["outputs"]): string[] {
  return Object.values(outputs).flatMap(keptInputs);
}

function keptInputs({ inputs }: Metafile["outputs"][string]): string[] {
  return Object.keys(inputs).filter((file) => (inputs[file]?.bytesInOutput ?? 0) > 0);
}

/** CommonJS for the same reasons. What they load later they find by their own place. */
async function bundlePrograms(): Promise<void> {
  const { outputFiles } = await build({
    ...bundleOptions,
    entryPoints: programs,
    outbase: sourceDir,
    outExtension: { ".js": ".cjs" },
    format: "cjs",
    define: { "import.meta.url": "__filename" },
  });
  for (const { path, text } of outputFiles) {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, withBuiltinsForLater(text, [...builtinsForLater, ...builtinsForArchives]));
  }
}

/** The code with the built-in modules of these names read at their first use. */
function withBuiltinsForLater(code: string, names: readonly string[]): string {
  const later = new RegExp(`(import_\\w+=)require\\("(${names.join("|")})"\\)`, "g");
  const lazy = code.replaceAll(later, '$1__later("$2")');
  if (lazy === code) return code;
  return `"use strict";const __later=name=>new Proxy({},{get:(_module,key)=>require(name)[key]});${lazy}`;
}

/**
 * Each file costs as much as the running of many lines, and compiling costs more than running: what the first stage loads lies
 * in one, and what the daemon loads in two others, beside which `svc __compile` keeps what V8 has made of them. V8 takes that if it
 * is the same V8.
 */
async function writePieces({ outputFiles, metafile }: BuildResult<typeof kept>): Promise<void> {
  const packs = new Map<string, Pack>();
  for (const pack of packsInOrder) {
    for (const name of packedChunks(metafile.outputs, pack)) if (!packs.has(name)) packs.set(name, pack);
  }
  const entries = entryChunks(metafile.outputs, [...aheadOfDaemon.entries, ...wholeDaemon.entries]);
  const shared = neededAlone(metafile.outputs, packs, entries);
  const [later, imported] = [piecesForLater(metafile.outputs), importedPieces(metafile.outputs)];
  const fromPacks = (code: string, own: Pack): string =>
    code.replaceAll(/require\("\.\/(?:chunks\/)?([^"/]+)"\)/g, (_call, name: string) => {
      const pack = packs.get(name);
      if (pack === own) return `__pack("${name}")`;
      return pack !== undefined && isLoadable(name, { pack, by: own, entries })
        ? `require("./${pack.loader}")("${name}")`
        : `require("./${name}")`;
    });
  const definitions = new Map<Pack, string[]>(packsInOrder.map((pack) => [pack, []]));
  for (const piece of outputFiles) {
    const name = basename(piece.path);
    // Nobody loads it by this name.
    if (name.startsWith("gen-") && !imported.has(name)) continue;
    const pack = packs.get(name);
    const { target, code: eager } = await commonJs(piece, pack !== undefined);
    const code = pack === wholeDaemon ? withImportsForLater(eager, later) : eager;
    await mkdir(dirname(target), { recursive: true });
    if (pack !== undefined)
      definitions.get(pack)?.push(`"${name}"(exports,module){${fromPacks(code, pack)}}`);
    if (name === mainPiece) continue;
    if (pack === firstStage)
      await writeFile(target, `module.exports=require("./${pack.loader}")("${name}");\n`);
    else if (pack === undefined || shared.has(name)) await writeFile(target, code);
  }
  const chunks = join(freshDir, "chunks");
  for (const [pack, defined] of definitions) {
    const files = pack === firstStage ? [] : [...shared];
    await writeFile(
      join(chunks, `${pack.name}.js`),
      `${packStart}(function(require,__dirname){"use strict";const files=new Set(${JSON.stringify(files)}),` +
        `loaded={},chunks={${defined.join(",\n")}};${packBody}})`,
    );
    await writeFile(join(chunks, pack.loader), packLoader(pack));
  }
  await writeFile(
    join(freshDir, mainFile),
    `#!/usr/bin/env node\n"use strict";${versionCheck}\nrequire("./chunks/${firstStage.loader}")("${mainPiece}");\n`,
    { mode: 0o755 },
  );
}

/** Names of the files of which nothing is evaluated while the daemon starts. */
function piecesForLater(outputs: Metafile["outputs"]): ReadonlySet<string> {
  const found = Object.entries(outputs).filter(([, output]) => {
    const files = keptInputs(output);
    return files.length > 0 && files.every((file) => forLater.test(file));
  });
  return new Set(found.map(([path]) => basename(path)));
}

function importedPieces(outputs: Metafile["outputs"]): ReadonlySet<string> {
  return new Set(Object.values(outputs).flatMap(({ imports }) => imports.map(({ path }) => basename(path))));
}

/** What is imported of such files becomes a call where it is used: `import_x.name` is `import_x().name`. */
function withImportsForLater(code: string, later: ReadonlySet<string>): string {
  const variables: string[] = [];
  const declared = code.replaceAll(
    /\b(\w+)=(require\("\.\/(?:chunks\/)?([^"/]+)"\))/g,
    (eager, variable: string, call: string, name: string) => {
      if (!later.has(name)) return eager;
      variables.push(variable);
      return `${variable}=()=>${call}`;
    },
  );
  if (variables.length === 0) return code;
  return declared.replaceAll(new RegExp(`\\b(${variables.join("|")})\\.`, "g"), "$1().");
}

/** Names of the files that the entries of a pack load, with what they load at once. */
function packedChunks(outputs: Metafile["outputs"], { entries }: Pack): ReadonlySet<string> {
  const names = new Set<string>();
  const add = (path: string): void => {
    for (const { path: imported, kind } of outputs[path]?.imports ?? []) {
      if (kind !== "import-statement" || outputs[imported] === undefined) continue;
      names.add(basename(imported));
      add(imported);
    }
  };
  for (const [path, { entryPoint }] of Object.entries(outputs)) {
    if (entryPoint === undefined || !entries.includes(entryPoint)) continue;
    names.add(basename(path));
    add(path);
  }
  return names;
}

/** Names of the files that are the entries themselves. */
function entryChunks(outputs: Metafile["outputs"], entries: readonly string[]): ReadonlySet<string> {
  const found = Object.entries(outputs).filter(([, { entryPoint = "" }]) => entries.includes(entryPoint));
  return new Set(found.map(([path]) => basename(path)));
}

/** Whether a piece of one pack is to be had from its loader by a piece of another. */
function isLoadable(
  name: string,
  { pack, by, entries }: { pack: Pack; by: Pack; entries: ReadonlySet<string> },
): boolean {
  const isEarlier = packsInOrder.indexOf(pack) < packsInOrder.indexOf(by);
  return isEarlier || (by === firstStage && entries.has(name));
}

/** Names of the daemon's pieces that others load as well: all of it would take them longer. */
function neededAlone(
  outputs: Metafile["outputs"],
  packs: ReadonlyMap<string, Pack>,
  entries: ReadonlySet<string>,
): ReadonlySet<string> {
  const names = new Set<string>();
  for (const [path, { imports }] of Object.entries(outputs)) {
    const by = packs.get(basename(path));
    for (const name of imports.map((each) => basename(each.path))) {
      const pack = packs.get(name);
      if (pack === undefined || pack === firstStage || pack === by) continue;
      if (by === undefined || !isLoadable(name, { pack, by, entries })) names.add(name);
    }
  }
  return names;
}

/** CommonJS has no `import.meta`: what it says is the same for all pieces, the directory of the bundle. */
async function commonJs(
  { path, text }: OutputFile,
  isPacked: boolean,
): Promise<{ target: string; code: string }> {
  // What is packed lies among the chunks, wherever it was.
  const dir = isPacked ? join(freshDir, "chunks") : dirname(path);
  const toRoot = JSON.stringify(relative(dir, freshDir) || ".");
  const needsUrl = text.includes("bundleUrl");
  const prelude = [
    '"use strict";',
    needsUrl || text.includes("bundleDir")
      ? `const bundleDir=require("node:path").join(__dirname,${toRoot});`
      : "",
    needsUrl ? 'const bundleUrl=require("node:url").pathToFileURL(bundleDir+"/svc.cjs").href;' : "",
  ];
  const { code } = await transform(text, {
    ...nodeOptions,
    format: "cjs",
    supported: { "dynamic-import": false },
  });
  return { target: path, code: prelude.join("") + withBuiltinsForLater(code, builtinsForLater) };
}

async function copy(from: string, to: string): Promise<void> {
  const target = join(freshDir, to);
  await mkdir(dirname(target), { recursive: true });
  await copyFile(from, target);
}
