/** The documentation: its links are valid, and its commands exist. */
import { access, readdir, glob, readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import packageJson from "../../package.json" with { type: "json" };
import { commandTree } from "../../src/build/manual.ts";
import type { CommandTree } from "../../src/cli/completion/command-tree.ts";
import { checkNames } from "../../src/doctor/examine.ts";
import { anchorOf } from "../../src/lib/markdown.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { readPage } from "../support/docs.ts";
import { existsSync } from "node:fs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const written = (await readdir(join(root, "docs"), { recursive: true })).filter((name) =>
  name.endsWith(".md"),
);
const pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", ...written.map((name) => `docs/${name}`)];
const threatModel = await readFile(join(root, "docs/threat-model.md"), "utf8");
const program = await commandTree();
const { version } = packageJson;
/** `svc app settings APP` shows them: the only group that also accepts other arguments. */
const settings = program.commands
  .find(({ name }) => name === "app")
  ?.commands.find(({ name }) => name === "settings");

const withoutCode = (text: string): string => text.replaceAll(/^```.*?^```$/gms, "");

async function anchorsOf(page: string): Promise<string[]> {
  const text = withoutCode(await readPage(page));
  return [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading));
}

for (const page of pages) {
  test(`the links of ${page} are valid`, async (t) => {
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

  test(`the commands in ${page} exist`, async (t) => {
    const lines = shownCommands(await readPage(page));
    const unknown = lines.filter((line) => !isCommand(line));
    t.deepEqual(unknown, []);
  });
}

test("users without a checkout are first told how to install svc, with the packages' names", async (t) => {
  const page = await readPage("docs/installing.md");
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
  // The source of the Node that Debian lacks, and what a removal retains.
  t.regex(blocks[0] ?? "", /deb\.nodesource\.com\/setup_24\.x/);
  for (const word of ["apt remove svc", "apt purge svc", "To upgrade"]) t.true(page.includes(word), word);
});

test("each check of svc doctor has a section in the troubleshooting page", async (t) => {
  const anchors = await anchorsOf("docs/troubleshooting.md");
  t.deepEqual(
    checkNames.filter((name) => !anchors.includes(anchorOf(name))),
    [],
  );
});

test("svc help shows each page by the name of its file, and no command has its name", async (t) => {
  const { stdout: list } = await runSvc(["help", "topics"]);
  const topics = [...list.matchAll(/^ {2}(\S+)/gm)].map(([, name = ""]) => name);
  const files = written.filter((file) => file !== "README.md").map((file) => basename(file, ".md"));
  t.deepEqual(topics.toSorted(), files.toSorted());
  for (const topic of topics) {
    t.false(
      program.commands.some(({ name, aliases }) => name === topic || aliases.includes(topic)),
      topic,
    );
    const { exitCode, stdout } = await runSvc(["help", topic]);
    t.is(exitCode, 0, topic);
    t.regex(stdout, /^# /, topic);
  }
  const atTerminal = await runSvc(["help", "restore-one-file"], {
    terminal: true,
    host: { env: { PAGER: "" } },
  });
  t.regex(atTerminal.stdout, /^\x1b\[1mRESTORE ONE FILE\x1b\[22m\n\n {4}\x1b\[36msvc backup ls hello/);
  t.regex((await runSvc(["help", "ls"])).stdout, /^Usage: svc ls/);
  t.is((await runSvc(["help", "nothing"])).exitCode, 2);
});

test("the manifest's reference shows a whole manifest first, then the required keys", async (t) => {
  const page = await readPage("docs/reference/manifest.md");
  const [, example = ""] = /^```yaml\n([^]*?)^```$/m.exec(page) ?? [];
  t.is(example, await readPage("examples/hello/svc.yaml"));
  const order = [
    "```yaml",
    "- `id`",
    "- `summary`",
    "`docker.mounts[].target`",
    "`docker.mounts[].read_only`",
  ];
  const at = order.map((each) => page.indexOf(each));
  t.deepEqual(
    at,
    at.toSorted((one, other) => one - other),
  );
  t.false(at.includes(-1));
});

test("an unknown command would be detected", (t) => {
  const lines = shownCommands(
    "```console\n$ svc ls --columns id | cat\n$ sudo svc nothing\n$ svc app start x --strange\n$ svc app nothing\n$ svc app settings x\n$ svc daemon --config x reload\n```\n",
  );
  t.deepEqual(
    lines.map((line) => isCommand(line)),
    [true, false, false, false, true, true],
  );
});

/** The words of each `svc …` in shell blocks, up to shell syntax. */
function shownCommands(text: string): string[][] {
  const blocks = [...text.matchAll(/^```(console|sh)\n(.*?)^```$/gms)];
  const lines = blocks.flatMap(([, kind, block = ""]) =>
    block.split("\n").flatMap((line) => {
      if (kind === "sh") return [line];
      return line.startsWith("$ ") ? [line.slice(2)] : [];
    }),
  );
  return lines.flatMap((line) =>
    [...line.matchAll(/(?<=^|&& |\| |sudo |\$\()(?:npm run -s svc --|svc) ([^|&>#()]*)/g)].map(
      ([, words = ""]) => words.trim().split(/\s+/),
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
    // The rest belongs to another program.
    if (word === "--") break;
    // A single `-` is standard input.
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
    } else if (command.name === "exec" && !isValue(command, words, word)) {
      // The command in the app follows.
      break;
    } else if (isNamed && command !== settings && !isValue(command, words, word)) return false;
  }
  return command !== program;
}

/** Whether a word before the command is the value of the preceding option. */
function isValue({ options }: CommandTree, words: readonly string[], word: string): boolean {
  const before = words[words.indexOf(word) - 1] ?? "";
  return [...program.options, ...options].some(
    ({ short, long, takesValue }) => takesValue && (short === before || long === before),
  );
}

for (const page of ["CONTRIBUTING.md", "docs/threat-model.md"]) {
  test(`source files and tests that ${page} names exist`, async (t) => {
    const text = await readPage(page);
    const sources = [...text.matchAll(/`([a-z-]+(?:\/[a-z0-9-]+)+\.(?:ts|mjs|sh))/g)].map(
      ([, name = ""]) => name,
    );
    const tests = [...text.matchAll(/`([a-z-]+(?:\/[a-z0-9-]+)+)` "/g)].map(
      ([, name = ""]) => `test/${name}.test.ts`,
    );
    const exists = (path: string): Promise<boolean> =>
      access(join(root, path)).then(
        () => true,
        () => false,
      );
    const missing: string[] = [];
    for (const name of sources) {
      const found = await Promise.all(["src", "test", "gen", "."].map((dir) => exists(join(dir, name))));
      if (!found.includes(true)) missing.push(name);
    }
    for (const name of tests) if (!(await exists(name))) missing.push(name);
    t.deepEqual(missing, []);
    t.true(sources.length > 0);
  });
}

// The threat model names the file that reads each input and the tests that exceed its bound: both exist.

/** Paths in backticks, each with the quoted titles that follow it. */
const references = [...threatModel.matchAll(/`([a-z][\w.-]*\/[\w./-]+)`((?:,? "[^"\n]+")*)/g)].map(
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
