/** What is loaded, and when: no forward references in the composition root, and light imports of commands. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import ts from "typescript";
import { importsOf, listSources, parseSource, root } from "./sources.ts";

// The composition root creates each part from existing parts: no closure uses a `const` that is declared later.

/** The files that create and connect the parts. */
const compositionRoots = /^src\/(daemon\/|apps\/create-apps\.ts)/;

const files = (await listSources()).filter((file) => compositionRoots.test(file));

test("the modules of the daemon are among the files that are checked", (t) => {
  t.true(files.some((file) => file.startsWith("src/daemon/modules/")));
});

for (const file of files) {
  test(`no closure in ${file} uses a later variable of its function`, async (t) => {
    t.deepEqual(forwardReferences(await parseSource(file)), []);
  });
}

test("a closure over a later const is found, one over an earlier const or a function is not", (t) => {
  const source = ts.createSourceFile(
    "x.ts",
    `function build() {
      const early = make(() => late.size);
      const fine = () => early + helper();
      const { late, other = () => fine } = make(fine);
      function helper() { return rest; }
      const rest = { late: 1 };
      const shadows = (after: number) => after + rest.late;
      const after = shadows;
    }
    const sees = () => below;
    const below = 1;`,
    ts.ScriptTarget.Latest,
    true,
  );
  t.deepEqual(forwardReferences(source), ["x.ts:2 late", "x.ts:5 rest"]);
});

/**
 * Positions such as `src/x.ts:3 name`, where a nested function uses a variable of an outer function before its
 * declaration.
 */
function forwardReferences(source: ts.SourceFile): string[] {
  const places: string[] = [];
  function visit(node: ts.Node): void {
    if (ts.isIdentifier(node) && isUse(node)) {
      const declared = laterDeclaration(node);
      if (declared !== undefined && declared.pos > node.pos) {
        const { line } = source.getLineAndCharacterOfPosition(node.getStart());
        places.push(`${source.fileName}:${line + 1} ${node.text}`);
      }
    }
    ts.forEachChild(node, visit);
  }
  visit(source);
  return places;
}

/** Whether an identifier reads a variable, rather than naming a property, a declaration or a type. */
function isUse(node: ts.Identifier): boolean {
  const { parent } = node;
  if (ts.isPropertyAccessExpression(parent)) return parent.expression === node;
  if (ts.isPropertyAssignment(parent)) return parent.initializer === node;
  if (ts.isVariableDeclaration(parent) || ts.isParameter(parent)) return parent.initializer === node;
  if (ts.isBindingElement(parent)) return parent.initializer === node;
  return ts.isShorthandPropertyAssignment(parent) || ts.isExpression(parent) || ts.isReturnStatement(parent);
}

/** The declaration of a variable in an outer function of its use; undefined for all others. */
function laterDeclaration(use: ts.Identifier): ts.Node | undefined {
  let isNested = false;
  for (let scope: ts.Node = use.parent; !ts.isSourceFile(scope); scope = scope.parent) {
    const declared =
      ts.isBlock(scope) || ts.isFunctionLike(scope) ? declarationIn(scope, use.text) : undefined;
    if (declared !== undefined) return isNested && !ts.isFunctionDeclaration(declared) ? declared : undefined;
    if (ts.isFunctionLike(scope)) isNested = true;
  }
  return undefined;
}

function declarationIn(scope: ts.Node, name: string): ts.Node | undefined {
  const candidates: readonly ts.Node[] = ts.isBlock(scope)
    ? scope.statements.flatMap((statement): readonly ts.Node[] =>
        ts.isVariableStatement(statement) ? statement.declarationList.declarations : [statement],
      )
    : (scope as ts.SignatureDeclaration).parameters;
  return candidates.find((each) => {
    if (ts.isVariableDeclaration(each) || ts.isParameter(each)) return namesOf(each.name).includes(name);
    return (ts.isFunctionDeclaration(each) || ts.isClassDeclaration(each)) && each.name?.text === name;
  });
}

function namesOf(name: ts.BindingName): string[] {
  if (ts.isIdentifier(name)) return [name.text];
  return name.elements.flatMap((each) => (ts.isBindingElement(each) ? namesOf(each.name) : []));
}

// The log prints errors only under the name `err`; pino prints `{}` under any other name.

const levels = ["info", "warn", "error"];

/** The positions of log calls with a detail named `error`, such as `src/x.ts:12`. */
function misnamed(source: ts.SourceFile): string[] {
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (
      ts.isCallExpression(node) &&
      ts.isPropertyAccessExpression(node.expression) &&
      levels.includes(node.expression.name.text) &&
      /(^|[.#])log$/i.test(node.expression.expression.getText(source))
    ) {
      const [details] = node.arguments;
      const names =
        details !== undefined && ts.isObjectLiteralExpression(details)
          ? details.properties.map(({ name }) => name?.getText(source))
          : [];
      const { line } = source.getLineAndCharacterOfPosition(node.getStart(source));
      if (names.includes("error")) found.push(`${source.fileName}:${line + 1}`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

test("errors are logged under the name that the log prints", async (t) => {
  // Parsing a file is slow, and few files log an error.
  const isNear = async (file: string): Promise<boolean> =>
    /log\.\w+\([^;]*\berror\b/i.test(await readFile(join(root, file), "utf8"));
  for (const file of await listSources())
    if (await isNear(file)) t.deepEqual(misnamed(await parseSource(file)), []);
});

test("a wrong name is detected", (t) => {
  const text =
    "log.warn({ app, error }, '');\nthis.#options.log.info({ error: failure }, '');\nlog.error({ err: error }, '');";
  const source = ts.createSourceFile("src/x.ts", text, ts.ScriptTarget.Latest, true);
  t.deepEqual(misnamed(source), ["src/x.ts:1", "src/x.ts:2"]);
});

// A command is loaded whole before it runs: what the commands import at once is light.

/** Each takes longer to load than a short command takes. */
const heavy =
  /^(?:node:(?:http2|https|tls|crypto|readline|child_process|zlib)|@(?:bufbuild|connectrpc)|yaml$|ajv)|_pb\.ts$/;
const program = "src/cli/command-list.ts";

test("no command imports something heavy before it runs", async (t) => {
  const commands = importsOf(await parseSource(program)).filter(({ isLazy }) => isLazy);
  t.true(commands.length > 30);
  const entries = ["src/main.ts", "src/cli/cli.ts", "src/cli/completion/complete.ts"];
  /** Each file that is loaded, and the file that imports it. */
  const importers = new Map([...entries, ...commands.map(({ to }) => to)].map((file) => [file, program]));
  for (const [file] of importers) {
    if (!file.endsWith(".ts") || heavy.test(file)) continue;
    for (const { to, isTypeOnly, isLazy } of importsOf(await parseSource(file))) {
      if (!isTypeOnly && !isLazy && !importers.has(to)) importers.set(to, file);
    }
  }
  t.true(importers.size > 100);
  t.deepEqual(
    [...importers].filter(([file]) => heavy.test(file)).map(([file, by]) => `${by} imports ${file}`),
    [],
  );
});
