/** `svc help TOPIC`: shows pages of `docs/`, which ship with svc. A topic has the name of its file. */
import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { nearWord } from "../lib/near-word.ts";
import { exitCodes } from "./output/exit-codes.ts";
import type { CliHost } from "./host.ts";
import { createPaint, wantsColor } from "./output/color.ts";
import { renderMarkdown } from "./output/markdown.ts";
import { page } from "./output/pager.ts";
import { columnsOf } from "./output/width.ts";

/** Maximum number of topics that are suggested for a mistyped one. */
const maxNear = 3;

interface Topic {
  readonly name: string;
  /** Path below `docs/`. */
  readonly file: string;
  readonly title: string;
}

/** The pages that the index of `docs/` links to, by the headings of the index. */
async function topicsByHeading(host: CliHost): Promise<readonly (readonly [heading: string, Topic[]])[]> {
  const index = await readFile(join(host.program.docsDir, "README.md"), "utf8");
  return index
    .split(/^## /m)
    .slice(1)
    .map((section) => {
      const links = [...section.matchAll(/\[([^\]]+)\]\(([^)#]+)\.md\)/g)];
      const topics = links.map(([, title = "", path = ""]) => ({
        name: basename(path),
        file: `${path}.md`,
        title,
      }));
      return [section.slice(0, section.indexOf("\n")), topics] as const;
    });
}

/** Topics that `svc help` accepts in addition to command names. */
export async function topicsOf(
  host: CliHost,
): Promise<readonly { readonly word: string; readonly description: string }[]> {
  const topics = (await topicsByHeading(host)).flatMap(([, ofHeading]) => ofHeading);
  return [
    ...topics.map(({ name, title }) => ({ word: name, description: title })),
    { word: "topics", description: "the list of these pages" },
    { word: "options", description: "the options of every command" },
  ];
}

/** Topics that an unknown name may mean: the one with a similar spelling, else those with most of its words, the best first. */
export async function nearTopics(host: CliHost, name: string): Promise<readonly string[]> {
  const names = (await topicsByHeading(host)).flatMap(([, topics]) => topics.map((topic) => topic.name));
  const near = nearWord(name, names);
  if (near !== undefined) return [near];
  const words = wordsOf(name);
  const shared = (topic: string): number => words.filter((word) => wordsOf(topic).includes(word)).length;
  return names
    .filter((topic) => shared(topic) * 2 > words.length)
    .toSorted((one, other) => shared(other) - shared(one))
    .slice(0, maxNear);
}

function wordsOf(name: string): readonly string[] {
  return name.toLowerCase().split(/[^a-z0-9]+/);
}

/** @returns the exit code; undefined if there is no such topic */
export async function showTopic(host: CliHost, name: string): Promise<number | undefined> {
  const groups = await topicsByHeading(host);
  if (name === "topics") {
    const all = groups.flatMap(([, topics]) => topics);
    const width = Math.max(...all.map((topic) => topic.name.length)) + 2;
    const lines = groups.map(([heading, topics]) => {
      return `${heading}:\n${topics.map((topic) => `  ${topic.name.padEnd(width)}${topic.title}\n`).join("")}`;
    });
    await page(host, `${lines.join("\n")}\nShow a page: svc help NAME\n`);
    return exitCodes.ok;
  }
  const topic = groups.flatMap(([, topics]) => topics).find((each) => each.name === name);
  if (topic === undefined) return undefined;
  const markdown = await readFile(join(host.program.docsDir, topic.file), "utf8");
  await page(host, host.stdout.isTTY === true ? forTerminal(host, markdown) : withoutTestMarks(markdown));
  return exitCodes.ok;
}

/** Code blocks of the guide say why the tests do not run them. */
function withoutTestMarks(markdown: string): string {
  return markdown.replaceAll(/^```(\w+) .*$/gm, "```$1");
}

function forTerminal({ env, stdout }: CliHost, markdown: string): string {
  return renderMarkdown(markdown, columnsOf(stdout), createPaint(wantsColor(env, true, true)));
}
