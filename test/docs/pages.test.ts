/** What people read: its links lead somewhere, and the commands in it are commands. */
import { access, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import packageJson from "../../package.json" with { type: "json" };
import { commandTree } from "../../src/build/command-files.ts";
import type { CommandTree } from "../../src/cli/command-tree.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { readPage } from "../support/docs.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const written = (await readdir(join(root, "docs"), { recursive: true })).filter((name) =>
  name.endsWith(".md"),
);
const pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", ...written.map((name) => `docs/${name}`)];
const program = commandTree();
const { version } = packageJson;
/** `svc app settings APP` shows them: of those with commands of their own it alone takes other words. */
const settings = program.commands
  .find(({ name }) => name === "app")
  ?.commands.find(({ name }) => name === "settings");

/** As GitHub spells the anchor of a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

const withoutCode = (text: string): string => text.replaceAll(/^```.*?^```$/gms, "");

async function anchorsOf(page: string): Promise<string[]> {
  const text = withoutCode(await readPage(page));
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading));
}

for (const page of pages) {
  test(`the links of ${page} lead somewhere`, async (t) => {
    const text = withoutCode(await readPage(page));
    const broken: string[] = [];
    for (const [, target = ""] of text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
      const [path = "", anchor] = target.split("#", 2);
      const file = path === "" ? page : join(dirname(page), path);
      const isThere = await access(join(root, file)).then(
        () => true,
        () => false,
      );
      const isAnchor = anchor === undefined || (isThere && (await anchorsOf(file)).includes(anchor));
      if (!isThere || !isAnchor) broken.push(target);
    }
    t.deepEqual(broken, []);
  });

  test(`the commands that ${page} shows are commands`, async (t) => {
    const lines = shownCommands(await readPage(page));
    const unknown = lines.filter((line) => !isCommand(line));
    t.deepEqual(unknown, []);
  });
}

test("who has no checkout is told first how svc is installed, with the names that packages have", async (t) => {
  const page = await readPage("docs/install.md");
  const blocks = [...page.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block = ""]) => block);
  t.notRegex(blocks[0] ?? "", /npm run/);
  for (const [at, name] of [
    `svc_${version}_amd64.deb`,
    `svc-${version}-linux-x64`,
    `svc-${version}-linux-x64.tar.gz`,
  ].entries()) {
    t.true(blocks[at]?.split(/[\s/]/).includes(name), name);
    t.regex(blocks[at] ?? "", /^sudo svc setup\b[^]*^sudo systemctl enable --now svc\b/m, name);
  }
  // Where the Node comes from that Debian lacks, and what a removal keeps.
  t.regex(blocks[0] ?? "", /deb\.nodesource\.com\/setup_24\.x/);
  for (const word of ["apt remove svc", "apt purge svc", "To upgrade"]) t.true(page.includes(word), word);
});

test("svc help shows each page, and no command has the name of one", async (t) => {
  const topics = (await runSvc(["help", "topics"])).stdout.trim().split("\n");
  t.true(topics.length >= 13);
  for (const topic of topics.map((line) => line.replace(/ .*/, ""))) {
    t.false(
      program.commands.some(({ name, aliases }) => name === topic || aliases.includes(topic)),
      topic,
    );
    const { exitCode, stdout } = await runSvc(["help", topic]);
    t.is(exitCode, 0, topic);
    t.regex(stdout, /^# /, topic);
  }
  t.regex((await runSvc(["help", "ls"])).stdout, /^Usage: svc ls/);
  t.is((await runSvc(["help", "nothing"])).exitCode, 2);
});

test("a command that is none would be noticed", (t) => {
  const lines = shownCommands(
    "```console\n$ svc ls --columns id | cat\n$ sudo svc nothing\n$ svc app start x --strange\n$ svc app nothing\n$ svc app settings x\n$ svc daemon --config x reload\n```\n",
  );
  t.deepEqual(
    lines.map((line) => isCommand(line)),
    [true, false, false, false, true, true],
  );
});

/** The words of each `svc …` of the blocks for a shell, up to what a shell would take for something else. */
function shownCommands(text: string): string[][] {
  const blocks = [...text.matchAll(/^```(console|sh)\n(.*?)^```$/gms)];
  const lines = blocks.flatMap(([, kind, block = ""]) =>
    block.split("\n").flatMap((line) => {
      if (kind === "sh") return [line];
      return line.startsWith("$ ") ? [line.slice(2)] : [];
    }),
  );
  return lines.flatMap((line) =>
    [...line.matchAll(/(?<=^|&& |\| |sudo )(?:npm run -s svc --|svc) ([^|&>#]*)/g)].map(([, words = ""]) =>
      words.trim().split(/\s+/),
    ),
  );
}

function isCommand(words: readonly string[]): boolean {
  const optionsOf = ({ options }: CommandTree): (string | undefined)[] =>
    options.flatMap(({ short, long }) => [short, long]);
  let command = program;
  const options = [...optionsOf(program), "--help"];
  let isNamed = true;
  for (const word of words) {
    // What follows is another program's.
    if (word === "--") break;
    // A `-` alone stands for what comes in.
    if (word.startsWith("-") && word !== "-") {
      const name = word.replace(/=.*$/, "");
      // Several in one word, or a number, as in -5.
      if (!options.includes(name) && !(/^-\w+$/.test(name) && options.includes(name.slice(0, 2))))
        return false;
      continue;
    }
    const child: CommandTree | undefined = isNamed
      ? command.commands.find(({ name, aliases }) => name === word || aliases.includes(word))
      : undefined;
    if (child !== undefined) {
      command = child;
      options.push(...optionsOf(child));
      isNamed = command.commands.length > 0;
    } else if (isNamed && command !== settings && !isValue(command, words, word)) return false;
  }
  return command !== program;
}

/** Whether a word before the command is the value of an option of the one above it. */
function isValue({ options }: CommandTree, words: readonly string[], word: string): boolean {
  const before = words[words.indexOf(word) - 1] ?? "";
  return [...program.options, ...options].some(
    ({ short, long, takesValue }) => takesValue && (short === before || long === before),
  );
}
