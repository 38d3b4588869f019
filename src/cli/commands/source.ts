/** `svc source …`: the indexes that packages are looked up in. */
import { resolve } from "node:path";
import type { Command } from "commander";
import { absoluteIfPath } from "../absolute-path.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { reportRemarks, requireOwn } from "../package-plan.ts";
import { UsageError } from "../failure.ts";
import type { RunCommand } from "../run-command.ts";
import type { Column } from "../render/table.ts";
import { calls, type Source } from "../transport/calls.ts";

export function addSourceCommand(parent: Command, run: RunCommand): void {
  const source = parent.command("source").description("list, add and remove sources of packages");
  source
    .command("list", { isDefault: true })
    .alias("ls")
    .description("list the sources (also: svc source)")
    .action(run(list));
  source
    .command("show")
    .description("list the packages of a source, or tell more of one")
    .argument("<name>", "the source; or a package, by its id or source/id")
    .action(
      run(async (context, name: string) => {
        const { showSource } = await import("./search.ts");
        return showSource(context, name);
      }),
    );
  source
    .command("add")
    .description("add a source, or give one another URL")
    .argument("<name>", "what source/id and --source call it")
    .argument("<url>", "a git repository, the https URL of an index.yaml, or a directory that holds one")
    .addHelpText(
      "after",
      examples(
        "svc source add main https://git.example.org/packages.git",
        "svc source add team https://packages.example.org/index.yaml",
        "svc source add own /srv/packages",
      ),
    )
    .action(run((context, name: string, url: string) => add(context, name, url)));
  source
    .command("remove")
    .alias("rm")
    .description("remove a source; what was installed from it stays")
    .argument("<name>", "the source")
    .action(run((context, name: string) => remove(context, name)));
  source
    .command("check")
    .description(
      "check the index.yaml of a source that you make, and the packages that lie beside it, without a daemon",
    )
    .argument("[dir]", "the directory that holds it", ".")
    .action(run(check));
}

const columns: readonly Column<Source>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "URL", value: ({ url }) => url, shrinkTo: 16 },
  {
    title: "FROM",
    value: ({ configured, shipped }) => (configured ? "configuration" : shipped ? "svc" : "added"),
  },
];

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listSources, {});
  if (context.json) return context.printJson(answer);
  const none = "There are no sources. Add one: svc source add NAME URL";
  return context.printTable(columns, answer.sources, none);
}

async function add(context: CommandContext, name: string, url: string): Promise<void> {
  const source = await context.call(calls.upsertSource, { name, url: absoluteIfPath(context, url) });
  const { name: added } = source;
  const said = `Added ${added}. Install from it: svc install ${added}/ID`;
  await context.tell(source, said);
  // It may be there later; whoever has mistyped it hears of that now.
  const { errors } = await context.call(calls.searchPackages, { query: "", source: added, limit: 1 });
  for (const { error } of errors)
    context.note(`warning: ${error}. Give it another URL: svc source add ${added} URL`);
}

async function remove(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.removeSource, { name });
  return context.tell(answer, `Removed ${answer.name}`);
}

async function check(context: CommandContext, dir: string): Promise<void> {
  if (/^[a-z][a-z+.-]*:\/\//.test(dir))
    throw new UsageError(
      `${dir} is a URL, and what can be checked is a directory of this machine: clone it first`,
    );
  const path = resolve(dir);
  requireOwn(context, path);
  const { checkIndex } = await import("../../authoring/check.ts");
  const problems = await checkIndex(path, await context.host.program.settingsThread());
  return reportRemarks(context, { problems, advice: [] });
}
