/** What the log prints of what failed: pino shows an error under the name `err` alone, and `{}` under any other. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import ts from "typescript";
import { listSources, parseSource, root } from "./sources.ts";

const levels = ["info", "warn", "error"];

/** The details of each call of a log in which something is named `error`, such as `src/x.ts:12`. */
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

test("what failed is named so that the log prints it", async (t) => {
  // To parse a file takes its time, and few log an error.
  const isNear = async (file: string): Promise<boolean> =>
    /log\.\w+\([^;]*\berror\b/i.test(await readFile(join(root, file), "utf8"));
  for (const file of await listSources())
    if (await isNear(file)) t.deepEqual(misnamed(await parseSource(file)), []);
});

test("a name that the log prints nothing of is seen", (t) => {
  const text =
    "log.warn({ app, error }, '');\nthis.#options.log.info({ error: failure }, '');\nlog.error({ err: error }, '');";
  const source = ts.createSourceFile("src/x.ts", text, ts.ScriptTarget.Latest, true);
  t.deepEqual(misnamed(source), ["src/x.ts:1", "src/x.ts:2"]);
});
