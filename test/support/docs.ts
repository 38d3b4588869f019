/** The pages that people read. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

const root = new URL("../../", import.meta.url);

/** @param file from the top of the checkout, such as `docs/try.md` */
export function readPage(file: string): Promise<string> {
  return readFile(new URL(file, root), "utf8");
}

/** What stands below a heading, to the next one of its level or the end. @throws Error where there is none */
export async function readSection(file: string, title: string): Promise<string> {
  const page = await readPage(file);
  const [, section] = new RegExp(`^## ${title}\\n(.*?)(?:^## |(?![^]))`, "ms").exec(page) ?? [];
  assert.ok(section !== undefined, `${file} has "${title}"`);
  return section;
}

/** What is typed at a prompt (`$ `), without what explains it. */
export function typedLines(text: string): string[] {
  return [...text.matchAll(/^\$ (.*)$/gm)].map(([, line = ""]) => line.replace(/ +#.*$/, ""));
}
