/** A request passes through few folders in one direction: the allowed imports, as described in CONTRIBUTING.md. */
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import ts from "typescript";
import { folderOf, type ImportEdge, importsOf, listSources, parseSource, root } from "./sources.ts";

/**
 * The imports that each room may have, including types and lazy imports: other rooms, or single files if a room needs only
 * those. A folder of `src/` is a room; the folders of `server`, `access` and `observability` are rooms of their own. `gen`
 * is open to all.
 */
const rooms: Record<string, string[]> = {
  "access/credentials.ts": ["errors.ts", "lib", "store"],
  "access/tokens": ["errors.ts", "lib", "store"],
  apps: [
    "engine",
    "errors.ts",
    "export",
    "lib",
    "logs",
    "packages",
    "run-as",
    "runtimes",
    "store",
    "sys",
    "work",
  ],
  authoring: ["errors.ts", "lib", "packages", "run-as", "runtimes"],
  backups: ["apps", "errors.ts", "lib", "packages", "run-as", "runtimes", "store", "sys", "triggers", "work"],
  build: [
    "cli",
    "codegen",
    "lib",
    "src/daemon/config-template.ts",
    "src/packages/manifest/schema-problems.ts",
    "src/web/described-file.ts",
  ],
  cli: [
    "errors.ts",
    "lib",
    "sys",
    "triggers",
    "authoring",
    "src/doctor/examine.ts",
    "src/setup/setup.ts",
    "src/packages/git/git-url.ts",
    "src/server/rest/json-writer.ts",
    // client/in-process.ts runs a command without a daemon.
    ...["config", "context", "log", "paths", "programs"].map((name) => `src/daemon/${name}.ts`),
    ...["call-context", "pipeline", "user-context"].map((name) => `src/server/rpc/${name}.ts`),
    "src/server/http/peer-uid.ts",
  ],
  codegen: ["error-payloads.ts", "errors.ts", "server/rest"],
  console: ["apps", "errors.ts", "lib", "run-as", "runtimes"],
  daemon: [
    "access/credentials.ts",
    "access/tokens",
    "apps",
    "backups",
    "console",
    "engine",
    "errors.ts",
    "files",
    "host",
    "lib",
    "observability/alerts",
    "observability/audit",
    "observability/events",
    "observability/metrics",
    "operations",
    "packages",
    "run-as",
    "runtimes",
    "scheduler",
    "server/handlers",
    "server/http",
    "server/rest",
    "server/rpc",
    "store",
    "sys",
    "triggers",
  ],
  doctor: [
    "engine",
    "errors.ts",
    "lib",
    "store",
    "sys",
    ...["config", "exposure", "paths", "stored-rows", "unlisted-images"].map(
      (name) => `src/daemon/${name}.ts`,
    ),
  ],
  engine: ["errors.ts", "lib", "logs", "store", "sys", "work"],
  "errors.ts": ["error-payloads.ts"],
  "error-payloads.ts": [],
  export: ["errors.ts", "lib", "packages", "runtimes"],
  files: ["apps", "errors.ts", "lib", "run-as", "store", "work"],
  host: ["engine", "errors.ts", "lib", "run-as", "sys"],
  lib: [],
  logs: [],
  "main.ts": ["cli", "daemon", "lib"],
  "observability/alerts": ["apps", "errors.ts", "host", "lib", "scheduler", "store"],
  "observability/audit": ["errors.ts", "lib", "store"],
  "observability/events": ["apps", "errors.ts", "lib"],
  "observability/metrics": ["host", "runtimes"],
  operations: ["apps", "errors.ts", "lib", "store", "work"],
  packages: ["access/credentials.ts", "errors.ts", "lib", "run-as", "store", "sys", "work"],
  "run-as": ["errors.ts", "lib", "sys"],
  runtimes: ["engine", "errors.ts", "lib", "logs", "packages", "run-as", "store", "sys"],
  scheduler: [
    "apps",
    "backups",
    "errors.ts",
    "host",
    "lib",
    "observability/events",
    "run-as",
    "store",
    "triggers",
  ],
  "server/handlers": [
    "access/credentials.ts",
    "access/tokens",
    "apps",
    "backups",
    "console",
    "engine",
    "errors.ts",
    "files",
    "host",
    "lib",
    "logs",
    "observability/alerts",
    "observability/audit",
    "observability/events",
    "observability/metrics",
    "operations",
    "packages",
    "run-as",
    "runtimes",
    "scheduler",
    "server/rpc",
    "work",
  ],
  "server/http": ["access/tokens", "errors.ts", "lib", "server/rest", "server/rpc", "sys"],
  "server/rest": ["error-payloads.ts", "errors.ts", "lib", "server/rpc"],
  "server/rpc": ["error-payloads.ts", "errors.ts", "lib"],
  setup: [
    "errors.ts",
    "lib",
    ...["config", "config-template", "paths"].map((name) => `src/daemon/${name}.ts`),
  ],
  store: ["errors.ts", "lib", "sys"],
  sys: ["errors.ts", "lib"],
  triggers: ["errors.ts", "lib"],
  web: ["lib"],
  work: ["errors.ts"],
};
const roomsByFolder = ["server", "access", "observability"];
/** Folders that do not depend on HTTP and Connect. */
const domain = Object.keys(rooms).filter(
  (room) => !/^(server\/|daemon|cli|web|build|codegen|main)/.test(room),
);

/** The only import of the daemon by the CLI, loaded when no socket is found. */
const inProcess = "src/cli/client/in-process.ts";

/** Packages that belong to some folders. */
const packageHomes: [name: RegExp, folders: string[]][] = [
  [/^(preact|@preact\/.*|@connectrpc\/connect-web)$/, ["web"]],
  [/^@connectrpc\//, ["server", "daemon", "cli", "web"]],
  [/^express$/, ["server"]],
  [/^commander$/, ["cli"]],
  [/^pino$/, ["daemon"]],
  [/^node:sqlite$/, ["store"]],
  [/^esbuild$/, ["build"]],
];

const files = await listSources();
const sources = await Promise.all(files.map(parseSource));
const edges = sources.flatMap(importsOf);

test("every room has its row", (t) => {
  t.deepEqual([...new Set(files.map(roomOf))].sort(), Object.keys(rooms).sort());
});

for (const [room, allowed] of Object.entries(rooms)) {
  test(`${room} imports only what its row allows`, (t) => {
    const strays = edges.filter(
      (edge) =>
        roomOf(edge.from) === room &&
        leaves(edge) &&
        !allowed.includes(roomOf(edge.to)) &&
        !allowed.includes(edge.to),
    );
    t.deepEqual(strays.map(describe), []);
  });

  test(`${room} uses all that its row allows`, (t) => {
    const used = edges.filter((edge) => roomOf(edge.from) === room).flatMap(({ to }) => [to, roomOf(to)]);
    t.deepEqual(
      allowed.filter((one) => !used.includes(one)),
      [],
    );
  });
}

test("no folders import each other in a circle, not even for types or lazily", (t) => {
  t.deepEqual(
    inCircles(edges.filter(leaves).map(({ from, to }) => ({ from: roomOf(from), to: roomOf(to) }))),
    [],
  );
});

/** Whether an import crosses two folders. */
function leaves({ from, to }: ImportEdge): boolean {
  return to.startsWith("src/") && roomOf(to) !== roomOf(from);
}

/** The room that a file is in, such as `server/rest`; for files directly in `src/` their name. */
function roomOf(file: string): string {
  const [top = "", folder = file, below = ""] = file.split("/");
  if (top !== "src") return top;
  return roomsByFolder.includes(folder) ? `${folder}/${below}` : folder;
}

test("no files import each other in a circle, not even for types", (t) => {
  const within = edges.filter(({ to, isLazy }) => to.startsWith("src/") && !isLazy);
  t.deepEqual(inCircles(within), []);
});

test("circles of imports are detected", (t) => {
  const edge = (from: string, to: string) => ({ from, to });
  t.deepEqual(inCircles([edge("a", "b"), edge("b", "c"), edge("c", "b"), edge("c", "d")]), ["b", "c"]);
});

/** The files that remain after repeatedly removing those without imports or without importers. */
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

test("packages are imported only by their folders", (t) => {
  const strays = edges.filter((edge) => {
    if (edge.isTypeOnly) return false;
    const home = packageHomes.find(([name]) => name.test(edge.to));
    return home !== undefined && !home[1].includes(folderOf(edge.from));
  });
  t.deepEqual(strays.map(describe), []);
});

/** Packages that svc is built on, and where each of them is loaded: none is listed only for its name. */
const foundations: Readonly<Record<string, RegExp>> = {
  "@connectrpc/connect-express": /^src\/server\//,
  "@connectrpc/connect-node": /^src\/server\//,
  ajv: /^src\/packages\//,
  "cron-parser": /^src\/triggers\//,
  dockerode: /^src\/engine\//,
  express: /^src\/server\//,
};

for (const [name, home] of Object.entries(foundations)) {
  test(`${name} is loaded by running code`, async (t) => {
    const loading = edges.filter(({ from, to, isTypeOnly }) => to === name && !isTypeOnly && home.test(from));
    const requiring = await filesRequiring(name);
    t.true(loading.length > 0 || requiring.some((file) => home.test(file)));
  });
}

/** CommonJS is not a graph of imports. */
async function filesRequiring(name: string): Promise<string[]> {
  const candidates = await Array.fromAsync(glob("src/**/*.cjs", { cwd: root }));
  const texts = await Promise.all(candidates.map((file) => readFile(join(root, file), "utf8")));
  return candidates.filter((_file, at) => texts[at]?.includes(`require("${name}")`));
}

test("the contract is generated with the tools that it names", async (t) => {
  const texts = await Promise.all(
    ["buf.gen.yaml", "src/codegen/generate.ts"].map((file) => readFile(join(root, file), "utf8")),
  );
  for (const tool of ["buf", "protoc-gen-es", "protoc-gen-connect-openapi", "openapi-typescript"])
    t.regex(texts.join(), new RegExp(`[ "]${tool}[",\\]\\n]`), tool);
});

test("the domain does not depend on Connect, not even on its types", (t) => {
  const strays = edges.filter(
    ({ from, to }) => domain.includes(roomOf(from)) && /^(@connectrpc\/|express$)/.test(to),
  );
  t.deepEqual(strays.map(describe), []);
});

test("the CLI reaches the daemon only through in-process.ts, loaded when needed", (t) => {
  const strays = edges.filter((edge) => edge.to === inProcess && !edge.isTypeOnly && !edge.isLazy);
  t.deepEqual(strays.map(describe), []);
});

test("standalone programs are plain JavaScript with only node: imports", (t) => {
  const strays = edges.filter(
    ({ from, to, isTypeOnly }) =>
      from.endsWith(".mjs") && !isTypeOnly && !to.startsWith("node:") && !/^src\/.*\.mjs$/.test(to),
  );
  t.deepEqual(strays.map(describe), []);
});

/** Started as child processes, which receive their input through arguments and environment. */
const programs = /^src\/(main\.ts|run-as\/helper.*\.mjs|runtimes\/process\/.*\.mjs|(codegen|build)\/.*)$/;

test("only programs read process.argv and process.env", (t) => {
  const readers = sources.filter(({ fileName }) => !programs.test(fileName)).flatMap(readsOfProcess);
  t.deepEqual(readers, []);
});

/** Positions such as `src/x.ts:3 process.env`. */
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

/** Whether an outer function of the node has its own variable `process`, such as a manifest's section. */
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

// The first stage responds before much is loaded: its direct and indirect static imports are few.

/** They take longer than everything in the first stage. */
const heavy = ["commander", "node:http", "node:http2", "node:fs/promises", "node:readline", "node:crypto"];

for (const entry of [
  "src/main.ts",
  "src/cli/completion/complete.ts",
  "src/cli/completion/complete-names.ts",
]) {
  test(`${entry} loads nothing large at once`, async (t) => {
    const seen = new Set([entry]);
    for (const file of seen) {
      if (!/\.(ts|mjs)$/.test(file)) continue;
      for (const { to, isTypeOnly, isLazy } of importsOf(await parseSource(file))) {
        if (!isTypeOnly && !isLazy) seen.add(to);
      }
    }
    t.true(seen.size > 1);
    t.deepEqual(
      [...seen].filter(
        (each) => heavy.includes(each) || each.startsWith("@bufbuild/") || each.endsWith("_pb.ts"),
      ),
      [],
    );
  });
}
