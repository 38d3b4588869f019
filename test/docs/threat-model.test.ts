/** The threat model names the file that reads each input and the tests that exceed its bound: both exist. */
import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import test from "ava";

const root = join(import.meta.dirname, "../..");
const text = await readFile(join(root, "docs/threat-model.md"), "utf8");

/** Paths in backticks, each with the quoted titles that follow it. */
const references = [...text.matchAll(/`([a-z][\w.-]*\/[\w./-]+)`((?:,? "[^"\n]+")*)/g)].map(
  ([, path = "", titles = ""]) => ({
    path,
    titles: [...titles.matchAll(/"([^"]+)"/g)].map(([, title = ""]) => title),
  }),
);

/** A source, or a test file or folder without its extension. */
function locate(path: string): string | undefined {
  return [`test/${path}.test.ts`, `test/${path}`, `src/${path}`, path]
    .map((candidate) => join(root, candidate))
    .find((candidate) => existsSync(candidate));
}

/** The text of a test with the tables of cases that it imports. */
async function sourceOf(file: string): Promise<string> {
  const source = await readFile(file, "utf8");
  const tables = [...source.matchAll(/from "(\.[^"]+)"/g)].map(([, path = ""]) => join(dirname(file), path));
  const own = tables.filter((path) => path.startsWith(join(root, "test/")));
  return [source, ...(await Promise.all(own.map((path) => readFile(path, "utf8"))))].join("\n");
}

test("every path exists, and contains the test titles that are quoted after it", async (t) => {
  t.true(references.length > 200);
  const missing: string[] = [];
  for (const { path, titles } of references) {
    const found = locate(path);
    if (found === undefined) missing.push(path);
    if (found === undefined || titles.length === 0) continue;
    const inFolder = await Array.fromAsync(glob(join(found, "**/*.ts")));
    const sources = await Promise.all((inFolder.length > 0 ? inFolder : [found]).map(sourceOf));
    for (const title of titles)
      if (!sources.some((source) => source.includes(title))) missing.push(`${path} "${title}"`);
  }
  t.deepEqual(missing, []);
});
