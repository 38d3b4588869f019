/** The documentation pages. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

const root = new URL("../../", import.meta.url);

/** @param file relative to the top of the checkout, such as `docs/try.md` */
export function readPage(file: string): Promise<string> {
  return readFile(new URL(file, root), "utf8");
}

/** The text below a heading, to the next one of its level or the end. @throws Error if there is none */
export async function readSection(file: string, title: string): Promise<string> {
  const page = await readPage(file);
  const [, section] = new RegExp(`^## ${title}\\n(.*?)(?:^## |(?![^]))`, "ms").exec(page) ?? [];
  assert.ok(section !== undefined, `${file} has "${title}"`);
  return section;
}

/** The commands after a prompt (`$ `), without their comments. */
export function typedLines(text: string): string[] {
  return [...text.matchAll(/^\$ (.*)$/gm)].map(([, line = ""]) => line.replace(/ +#.*$/, ""));
}
