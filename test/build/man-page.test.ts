/** `man svc` and the command reference contain the same text and examples as `--help`. */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { commandManual, commandTree } from "../../src/build/command-program.ts";
import { manPage, text } from "../../src/build/man-page.ts";
import type { CommandTree } from "../../src/cli/completion/command-tree.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { readPage } from "../support/docs.ts";

const page = manPage({ manual: await commandManual(), version: "1.2.3", date: "2026-01-01" });
const reference = await readPage("docs/reference/commands.md");

const tree = await commandTree();
/** `svc app start` is described as `svc start`. */
const topNames = new Set(tree.commands.map(({ name }) => name));

/** The names of each command that help lists, groups before their commands, without `svc app …` for a command of `svc`. */
function pathsOf({ commands }: CommandTree, path: readonly string[] = []): string[][] {
  return commands
    .filter(({ name, hidden }) => !hidden && name !== "help")
    .filter(({ name }) => path.join(" ") !== "app" || !topNames.has(name))
    .flatMap((command) => {
      const here = [...path, command.name];
      return [here, ...pathsOf(command, here)];
    });
}

interface Help {
  /** `svc app logs <id>` */
  readonly usage: string;
  readonly isGroup: boolean;
  /** The terms and descriptions of its own arguments and options. */
  readonly entries: readonly (readonly [term: string, says: string])[];
  readonly examples: readonly string[];
}

/** The text without line breaks. */
async function helpOf(path: readonly string[]): Promise<Help> {
  let printed = "";
  const stdout = { columns: 10_000, isTTY: true, write: (part: string) => (printed += part) !== "" };
  await runSvc([...path, "--help"], { host: { stdout: stdout as never } });
  const entries: [string, string][] = [];
  const examples: string[] = [];
  let section = "";
  for (const line of printed.split("\n")) {
    if (/^\S/.test(line)) section = line;
    if (/^(Arguments|Options):$/.test(section)) {
      const [, term, says] = /^ {2}(\S.*?)(?: {2,}(\S.*))?$/.exec(line) ?? [];
      if (term !== undefined && term !== "-h, --help") entries.push([term, says ?? ""]);
    }
    if (/^Examples?:$/.test(section) && line.startsWith("  ")) examples.push(line.trim());
  }
  const usage = /^Usage: (.*)$/m.exec(printed)?.[1] ?? "";
  const words = usage.split(" ").slice(path.length + 1);
  return {
    usage: ["svc", ...path, ...words.filter((word) => word !== "[options]")].join(" "),
    isGroup: /^(Commands|Apps):$/m.test(printed),
    entries,
    examples,
  };
}

/** A page's section about a command. */
const partOf = (all: string, heading: string, next: string): string | undefined => {
  const start = all.indexOf(`\n${heading}\n`);
  return start < 0 ? undefined : all.slice(start, all.indexOf(next, start + heading.length));
};

test("man and the reference describe each command as its help does", async (t) => {
  let entryCount = 0;
  for (const path of pathsOf(tree)) {
    const { usage, isGroup, entries } = await helpOf(path);
    if (isGroup) continue;
    const inMan = partOf(page, `.SS "${text(usage)}"`, "\n.S");
    const inReference = partOf(`${reference}\n## `, `## \`${usage}\``, "\n## ");
    t.truthy(inMan, usage);
    t.truthy(inReference, usage);
    for (const [term, says] of entries) {
      const lines = `\n.TP\n.B ${text(term)}\n${text(says)}\n`;
      t.true(`${inMan ?? ""}\n`.includes(lines), `man: ${usage}: ${term}`);
      const item = `\n- \`${term}\`: ${says}\n`;
      t.true(`${inReference ?? ""}\n`.includes(item), `reference: ${usage}: ${term}`);
      entryCount += 1;
    }
  }
  t.true(entryCount > 200, String(entryCount));
});

test("common commands have examples, the same in help, man and the reference", async (t) => {
  const shown = new Map<string, readonly string[]>();
  const inMan = page.slice(page.indexOf("\n.SH EXAMPLES\n"), page.indexOf(".SH EXIT STATUS\n"));
  for (const path of pathsOf(tree)) {
    const { examples, usage } = await helpOf(path);
    if (examples.length === 0) continue;
    shown.set(path.join(" "), examples);
    const lines = examples.map((line) => `  ${text(line)}`).join("\n");
    t.true(inMan.includes(text(usage)), usage);
    t.true(inMan.includes(`\n.nf\n${lines}\n.fi\n`), `man: ${usage}`);
    t.true(reference.includes(`\n\`\`\`sh\n${examples.join("\n")}\n\`\`\`\n`), `reference: ${usage}`);
  }
  for (const path of [
    ...["install", "upgrade", "logs", "settings set", "source add", "token issue", "package init"],
    ...["node add", "schedule add", "backup create", "backup restore"],
  ])
    t.true((shown.get(path)?.length ?? 0) >= 2, path);
});

test("man renders the page without a warning", async (t) => {
  t.notRegex(
    page,
    /^'|^\.(?!TH|SH|SS|TP|PP|nf|fi|nh$|ad l$|B |BR |RI |I )/m,
    "nothing else is an instruction",
  );
  t.notRegex(page, /[~^`']/, "groff since 1.23 prints other characters for them");
  const dir = await mkdtemp(join(tmpdir(), "svc-man-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "svc.1");
  await writeFile(file, page);
  const { stdout, stderr } = await promisify(execFile)(
    "man",
    ["--warnings", "--local-file", "-Tutf8", "-P", "cat", file],
    { env: { ...process.env, MANWIDTH: "100" }, maxBuffer: 1 << 24 },
  );
  t.is(stderr, "");
  // Bold text is printed twice at one position.
  const printed = stdout.replaceAll(/.\x08/gu, "");
  t.regex(printed, /^ +-n, --tail <lines>\n +show the last N lines, at most 100000 \(default: 100\)$/m);
  for (const line of [
    "svc schedule add '*/5 * * * *' shell --command 'echo hi'",
    "svc node add bench ssh://bench:2222 --ssh-option IdentityFile=~/.ssh/bench",
  ])
    t.true(printed.includes(` ${line}\n`), "for copying");
});
