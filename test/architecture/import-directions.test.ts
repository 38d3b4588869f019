/** A request walks one way through few rooms: who may import what, as CONTRIBUTING.md has it. */
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import ts from "typescript";
import { folderOf, importsOf, listSources, parseSource, root, type ImportEdge } from "./sources.ts";

interface Direction {
  /** Folders of `src/`, `gen`, or single files that it may use at run time. */
  uses: string[];
  /** Folders of which it may know the types. */
  knows?: string[];
}

const domain = [
  "alerts",
  "apps",
  "audit",
  "credentials",
  "packages",
  "runtimes",
  "identity",
  "tokens",
  "host",
  "metrics",
  "scheduler",
  "backups",
  "docker",
  "events",
  "export",
  "files",
  "console",
];
const rooms = ["transport", "rest", "rpc", "handlers", "store", ...domain];
/** Every folder may use these. */
const ground = ["errors.ts", "error-payloads.ts", "lib", "gen"];

const directions: Record<string, Direction> = {
  "main.ts": { uses: [...ground, "daemon", "cli"] },
  "errors.ts": { uses: ["gen/svc/v1/reasons.ts"], knows: ["gen", "error-payloads.ts"] },
  "error-payloads.ts": { uses: ["gen"] },
  lib: { uses: [] },
  store: { uses: ["errors.ts", "lib"], knows: ["gen"] },
  rest: { uses: [...ground, "src/rpc/user-context.ts"], knows: ["rpc"] },
  rpc: { uses: ground, knows: ["tokens", "identity"] },
  transport: { uses: [...ground, "rest", "rpc"], knows: ["tokens", "identity"] },
  handlers: { uses: [...ground, ...domain, "rpc"], knows: ["daemon"] },
  daemon: { uses: [...ground, ...rooms] },
  doctor: { uses: [...ground, "daemon", "docker", "store"] },
  setup: { uses: [...ground, "daemon"] },
  authoring: { uses: [...ground, "packages", "runtimes"], knows: ["identity"] },
  cli: {
    uses: [
      ...ground,
      "src/rest/json-writer.ts",
      "src/doctor/examine.ts",
      "src/setup/setup.ts",
      "src/packages/git-url.ts",
      "authoring",
    ],
    knows: ["rpc"],
  },
  codegen: { uses: ["gen", "rest", "errors.ts", "error-payloads.ts"] },
  build: {
    uses: ["lib", "cli", "codegen", "src/daemon/config-template.ts", "src/packages/schema-problems.ts"],
    knows: ["web"],
  },
  web: { uses: ["gen", "lib"] },
  ...Object.fromEntries(domain.map((folder) => [folder, { uses: [...ground, "store", ...domain] }])),
};

/** The only door from the command line to the daemon, opened when no socket is there. */
const inProcess = "src/cli/in-process.ts";

/** Packages that belong to some folders. */
const packageHomes: [name: RegExp, folders: string[]][] = [
  [/^(preact|@preact\/.*|@connectrpc\/connect-web)$/, ["web"]],
  [/^@connectrpc\//, ["transport", "rpc", "handlers", "daemon", "cli", "web"]],
  [/^express$/, ["transport"]],
  [/^commander$/, ["cli"]],
  [/^pino$/, ["daemon"]],
  [/^node:sqlite$/, ["store"]],
  [/^esbuild$/, ["build"]],
];

const files = await listSources();
const sources = await Promise.all(files.map(parseSource));
const edges = sources.flatMap(importsOf);

test("every folder of src/ has its directions written down", (t) => {
  t.deepEqual(
    [...new Set(files.map(folderOf))].filter((folder) => directions[folder] === undefined),
    [],
  );
});

for (const [folder, direction] of Object.entries(directions)) {
  test(`${folder} imports only what it may`, (t) => {
    const strays = edges
      .filter((edge) => folderOf(edge.from) === folder && edge.from !== inProcess)
      .filter((edge) => isStray(edge, folder, direction));
    t.deepEqual(strays.map(describe), []);
  });
}

function isStray(edge: ImportEdge, folder: string, { uses, knows = [] }: Direction): boolean {
  const target = edge.to.startsWith("src/")
    ? folderOf(edge.to)
    : edge.to.startsWith("gen/")
      ? "gen"
      : undefined;
  if (target === undefined || target === folder) return false;
  if (uses.includes(target) || uses.includes(edge.to)) return false;
  return !(edge.isTypeOnly && knows.includes(target));
}

test("no files import each other in a circle, not even for types", (t) => {
  const within = edges.filter(({ to, isLazy }) => to.startsWith("src/") && !isLazy);
  t.deepEqual(inCircles(within), []);
});

test("circles of imports are seen", (t) => {
  const edge = (from: string, to: string) => ({ from, to });
  t.deepEqual(inCircles([edge("a", "b"), edge("b", "c"), edge("c", "b"), edge("c", "d")]), ["b", "c"]);
});

/** The files that are left when those that import none of the others, or that none imports, go again and again. */
function inCircles(all: readonly Pick<ImportEdge, "from" | "to">[]): string[] {
  let left = all;
  for (;;) {
    const importers = new Set(left.map(({ from }) => from));
    const imported = new Set(left.map(({ to }) => to));
    const next = left.filter(({ from, to }) => importers.has(to) && imported.has(from));
    if (next.length === left.length) return [...importers].sort();
    left = next;
  }
}

test("packages stay in the folders that they belong to", (t) => {
  const strays = edges.filter((edge) => {
    if (edge.isTypeOnly) return false;
    const home = packageHomes.find(([name]) => name.test(edge.to));
    return home !== undefined && !home[1].includes(folderOf(edge.from));
  });
  t.deepEqual(strays.map(describe), []);
});

/** What svc is to stand on, and where each of them runs: none is kept for its name alone. */
const foundations: Readonly<Record<string, RegExp>> = {
  "@connectrpc/connect-express": /^src\/transport\//,
  "@connectrpc/connect-node": /^src\/transport\//,
  ajv: /^src\/packages\//,
  "cron-parser": /^src\/scheduler\//,
  dockerode: /^src\/docker\//,
  express: /^src\/transport\//,
};

for (const [name, home] of Object.entries(foundations)) {
  test(`${name} is loaded by code that runs`, async (t) => {
    const loading = edges.filter(({ from, to, isTypeOnly }) => to === name && !isTypeOnly && home.test(from));
    const requiring = await filesRequiring(name);
    t.true(loading.length > 0 || requiring.some((file) => home.test(file)));
  });
}

/** CommonJS is no graph of imports. */
async function filesRequiring(name: string): Promise<string[]> {
  const candidates = await Array.fromAsync(glob("src/**/*.cjs", { cwd: root }));
  const texts = await Promise.all(candidates.map((file) => readFile(join(root, file), "utf8")));
  return candidates.filter((_file, at) => texts[at]?.includes(`require("${name}")`));
}

test("the contract is built by the tools that it names", async (t) => {
  const texts = await Promise.all(
    ["buf.gen.yaml", "src/codegen/generate.ts"].map((file) => readFile(join(root, file), "utf8")),
  );
  for (const tool of ["buf", "protoc-gen-es", "protoc-gen-connect-openapi", "openapi-typescript"])
    t.regex(texts.join(), new RegExp(`[ "]${tool}[",\\]\\n]`), tool);
});

test("the domain does not know Connect, not even its types", (t) => {
  const strays = edges.filter(
    ({ from, to }) => domain.includes(folderOf(from)) && /^(@connectrpc\/|express$)/.test(to),
  );
  t.deepEqual(strays.map(describe), []);
});

test("the command line reaches the daemon only through in-process.ts, loaded when needed", (t) => {
  const strays = edges.filter((edge) => edge.to === inProcess && !edge.isTypeOnly && !edge.isLazy);
  t.deepEqual(strays.map(describe), []);
});

test("programs of their own are plain JavaScript with node: imports only", (t) => {
  const strays = edges.filter(
    ({ from, to, isTypeOnly }) =>
      from.endsWith(".mjs") && !isTypeOnly && !to.startsWith("node:") && !/^src\/.*\.mjs$/.test(to),
  );
  t.deepEqual(strays.map(describe), []);
});

/** Started as processes of their own, so that arguments and environment are how they are spoken to. */
const programs = /^src\/(main\.ts|identity\/helper.*\.mjs|runtimes\/process\/.*\.mjs|(codegen|build)\/.*)$/;

test("process.argv and process.env are read by programs alone", (t) => {
  const readers = sources.filter(({ fileName }) => !programs.test(fileName)).flatMap(readsOfProcess);
  t.deepEqual(readers, []);
});

/** Places such as `src/x.ts:3 process.env`. */
function readsOfProcess(source: ts.SourceFile): string[] {
  const places: string[] = [];
  function visit(node: ts.Node): void {
    const isRead =
      ts.isPropertyAccessExpression(node) &&
      node.expression.getText(source) === "process" &&
      ["argv", "env", "execArgv"].includes(node.name.text) &&
      !isShadowed(node);
    if (isRead) {
      const { line } = source.getLineAndCharacterOfPosition(node.getStart());
      places.push(`${source.fileName}:${line + 1} ${node.getText(source)}`);
    }
    ts.forEachChild(node, visit);
  }
  visit(source);
  return places;
}

function describe({ from, line, to }: ImportEdge): string {
  return `${from}:${line} imports ${to}`;
}

/** Whether a function around the node calls something of its own `process`, such as a manifest's section. */
function isShadowed(node: ts.Node): boolean {
  for (let scope: ts.Node = node; !ts.isSourceFile(scope); scope = scope.parent) {
    if (ts.isFunctionLike(scope) && declaresProcess(scope)) return true;
  }
  return false;
}

function declaresProcess(node: ts.Node): boolean {
  const isDeclaration =
    (ts.isVariableDeclaration(node) || ts.isParameter(node) || ts.isBindingElement(node)) &&
    ts.isIdentifier(node.name) &&
    node.name.text === "process";
  return isDeclaration || (ts.forEachChild(node, declaresProcess) ?? false);
}
