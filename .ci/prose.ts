/**
 * `npm run prose [-- PATH …]`: finds English that a reader has to read twice, in comments, strings and documents. The rules are
 * in CONTRIBUTING.md. A hit has the file, the line, the rule and the words. `.ci/prose-allowed.json` lists the exceptions, each
 * with its reason; an exception without a hit is an error, too.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

interface Rule {
  readonly name: string;
  readonly pattern: RegExp;
}

interface Allowed {
  readonly file: string;
  /** Part of the line. */
  readonly text: string;
  readonly reason: string;
}

export interface Hit {
  readonly file: string;
  readonly line: number;
  readonly rule: string;
  readonly words: string;
}

const verbs =
  "is|are|was|were|has|have|had|can|cannot|may|must|does|do|did|goes|comes|takes|asks|waits|says|stays|holds|wants|needs|makes|gives|gets|runs|ends|begins|stands|lies|keeps|leaves|reads|writes";

const rules: readonly Rule[] = [
  {
    name: "begin with a noun or a verb, not with who or what",
    pattern: new RegExp(
      `(?:^|[.;:]\\s)(?:Who|Whoever|Whatever|What)\\s(?!if\\b|is\\s(?:this|that|svc)\\b)[a-z' ]+?\\b(?:${verbs})\\b`,
    ),
  },
  {
    name: 'write "is not", not "is no"',
    pattern: /(?<!\b[Tt]here )\b(?:is|are|was|were|be)\s(?:no|none)\b(?!\s(?:longer|more than|such file))/,
  },
  { name: 'no inverted "of which"', pattern: /\bof\s(?:which|whom|whose)\b/ },
  {
    name: 'no inverted "of"',
    pattern:
      /(?:^|[,;(]\s)[Oo]f\s(?:a|an|the|its|all|every|each)\s[\w' -]{2,40}?\s(?:the|only|all|alone|each)\b/,
  },
  { name: 'write "only", not "alone"', pattern: /\b\w+s?\salone\b(?!\s(?:is|are|will)\b)/ },
  {
    name: "no archaisms",
    pattern:
      /\b(?:anew|afresh|whereto|thereof|therein|wherein|whereof|hitherto|all the same|such a one|that one's|to its mind|had its say|has its say|the last word|in the place of|takes? up|take these up|gives? way|giving way|laid? out|lays out|made ready|mends?|mended|of one's own|by itself alone)\b/,
  },
  {
    name: "name who acts",
    pattern: /\b(?:is|are|was|were|be|being)\s(?:told|said|heard|asked|spoken|meant)\b/,
  },
  { name: 'no "for who"', pattern: /\b(?:for|to|of|by|with)\s(?:who|whoever)\b(?!se)/ },
  {
    name: "use the term of the field",
    pattern:
      /\b(?:front door|doors?|hands of|user's hands|lanes?|places? of its own|turns? of (?:its|their) own|the way back|what is kept|kept views?|foreign|stray)\b/,
  },
  {
    name: "give the reason instead of a reference to a document that is not here",
    pattern: /\((?:[TDS]\s?\d[\d.]*|decisions?\s\d+)(?:,\s?(?:[TDS]\s?)?\d[\d.]*)*\)|\bdecisions?\s\d+\b/,
  },
];
const longestSentence = 35;

const root = join(import.meta.dirname, "..");
const searched = ["src", "proto", "docs", "test", "bench", "packaging", ".ci", "examples", "*.md"];
const checked = /\.(?:tsx?|mjs|cjs|proto|sh|md)$|\.ci\/run$/;
/** Generated files, and the rules themselves with their test. */
const skipped = /^(?:docs\/reference\/|\.ci\/prose\.ts$|test\/docs\/prose\.test\.ts$|LICENSE)/;

if (import.meta.main) process.exitCode = await checkFiles(process.argv.slice(2));

/** Prints the hits in the given files, or in all. @returns the exit code */
async function checkFiles(paths: readonly string[]): Promise<number> {
  const { stdout } = await promisify(execFile)(
    "git",
    ["ls-files", "--", ...(paths.length > 0 ? paths : searched)],
    { cwd: root, maxBuffer: 2 ** 26 },
  );
  const allowed = JSON.parse(
    await readFile(join(import.meta.dirname, "prose-allowed.json"), "utf8"),
  ) as Allowed[];
  const used = new Set<Allowed>();
  const hits: Hit[] = [];
  for (const file of stdout.split("\n").filter((path) => checked.test(path) && !skipped.test(path))) {
    const text = await readFile(join(root, file), "utf8");
    for (const hit of hitsIn(file, text)) {
      const line = text.split("\n")[hit.line - 1] ?? "";
      const entry = allowed.find((each) => each.file === file && line.includes(each.text));
      if (entry === undefined) hits.push(hit);
      else used.add(entry);
    }
  }
  const unused = paths.length > 0 ? [] : allowed.filter((entry) => !used.has(entry));
  for (const { file, line, rule, words } of hits) console.log(`${file}:${line}: ${words} (${rule})`);
  for (const { file, text } of unused) {
    console.log(`.ci/prose-allowed.json: no hit in ${file} for the exception "${text}"`);
  }
  console.log(`${hits.length} sentences to rewrite, ${unused.length} unused exceptions.`);
  return hits.length + unused.length > 0 ? 1 : 0;
}

/** The sentences of a file that break a rule; `file` selects how its text is read. */
export function hitsIn(file: string, text: string): Hit[] {
  const found: Hit[] = [];
  for (const [line, prose] of file.endsWith(".md") ? proseOf(text) : proseOfCode(text)) {
    for (const { name, pattern } of rules) {
      const match = pattern.exec(prose);
      if (match === null) continue;
      const words = prose.slice(Math.max(0, match.index - 20), match.index + match[0].length + 40).trim();
      found.push({ file, line, rule: name, words });
    }
    const long = prose
      .split(/(?<=[.!?;])\s|\|/)
      .find((sentence) => sentence.split(/\s+/).length > longestSentence);
    if (long !== undefined) {
      found.push({ file, line, rule: `at most ${longestSentence} words`, words: `${long.slice(0, 80)} …` });
    }
  }
  return found;
}

/** The lines of a document outside of code blocks, with their numbers. */
function* proseOf(text: string): Generator<[number, string]> {
  let isCode = false;
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trimStart().startsWith("```")) isCode = !isCode;
    else if (!isCode) yield [index + 1, withoutCode(line)];
  }
}

/** Comments and longer strings, with their line numbers. */
function* proseOfCode(text: string): Generator<[number, string]> {
  let isComment = false;
  for (const [index, line] of text.split("\n").entries()) {
    const trimmed = line.trim();
    if (isComment || trimmed.startsWith("/*")) {
      isComment = !trimmed.includes("*/");
      yield [index + 1, withoutCode(trimmed.replace(/^\W+|\*\/$/g, ""))];
    } else if (/^(?:\/\/|#)/.test(trimmed)) yield [index + 1, withoutCode(trimmed.replace(/^[/# ]+/, ""))];
    else {
      for (const [, double, template] of line.matchAll(/"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)) {
        const words = (double ?? template ?? "").replaceAll(/\$\{[^}]*\}/g, "x");
        if (words.length >= 12 && words.split(" ").length > 2) yield [index + 1, words];
      }
    }
  }
}

/** Names in code quotes are not English. */
function withoutCode(text: string): string {
  return text.replaceAll(/`[^`]*`/g, "`x`");
}
