/** The sources as a graph of imports. */
import { glob, readFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import ts from "typescript";

export interface ImportEdge {
  /** Relative to the checkout, such as `src/server/rest/bind.ts`. */
  from: string;
  /** The same, or the name of a package or of a Node module, such as `pino` or `node:fs`. */
  to: string;
  /** `import type`, which leaves no trace at run time. */
  isTypeOnly: boolean;
  /** `import()`, loaded when needed. */
  isLazy: boolean;
  /** 1-based. */
  line: number;
}

export const root = join(import.meta.dirname, "../..");

/** The files of `src/`, relative to the checkout, sorted. */
export async function listSources(): Promise<string[]> {
  const files = await Array.fromAsync(glob("src/**/*.{ts,tsx,mjs}", { cwd: root }));
  return files.sort();
}

export async function parseSource(file: string): Promise<ts.SourceFile> {
  return ts.createSourceFile(file, await readFile(join(root, file), "utf8"), ts.ScriptTarget.Latest, true);
}

/** Every static import, re-export and `import()` of a literal in a file. */
export function importsOf(source: ts.SourceFile): ImportEdge[] {
  const edges: ImportEdge[] = [];
  function visit(node: ts.Node): void {
    const specifier = specifierOf(node);
    if (specifier !== undefined) {
      edges.push({
        from: source.fileName,
        to: resolve(source.fileName, specifier.name),
        isTypeOnly: specifier.isTypeOnly,
        isLazy: ts.isCallExpression(node),
        line: source.getLineAndCharacterOfPosition(node.getStart()).line + 1,
      });
    }
    ts.forEachChild(node, visit);
  }
  visit(source);
  return edges;
}

function specifierOf(node: ts.Node): { name: string; isTypeOnly: boolean } | undefined {
  if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
    const isTypeOnly = node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword;
    return { name: node.moduleSpecifier.text, isTypeOnly };
  }
  if (ts.isExportDeclaration(node) && node.moduleSpecifier && ts.isStringLiteral(node.moduleSpecifier)) {
    return { name: node.moduleSpecifier.text, isTypeOnly: node.isTypeOnly };
  }
  if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
    const { literal } = node.argument;
    return ts.isStringLiteral(literal) ? { name: literal.text, isTypeOnly: true } : undefined;
  }
  if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
    const [argument] = node.arguments;
    if (argument && ts.isStringLiteralLike(argument)) return { name: argument.text, isTypeOnly: false };
  }
  return undefined;
}

function resolve(from: string, specifier: string): string {
  if (!specifier.startsWith(".")) return specifier;
  return relative(root, join(root, dirname(from), specifier));
}

/** The folder of `src/` that a file is in, such as `rest`; for files directly in `src/` their name. */
export function folderOf(file: string): string {
  return file.split("/")[1] ?? file;
}
